"""How long the token's comparison takes must say nothing about where a guess goes wrong."""

from __future__ import annotations

import math
import random
import statistics
import time
from typing import Final

import pytest

from shared.webhook.tokens import is_one_of

pytestmark = pytest.mark.bench

SECRET: Final = b"0123456789abcdef" * 3
PREVIOUS: Final = b"fedcba9876543210" * 3
ROUNDS: Final = 20_000
PER_SAMPLE: Final = 10

GUESSES: Final = {
    "first byte": b"x" + SECRET[1:],
    "middle byte": SECRET[:24] + b"x" + SECRET[25:],
    "last byte": SECRET[:-1] + b"x",
    "nothing right": b"x" * len(SECRET),
    "right": SECRET,
    "the previous one": PREVIOUS,
}


def samples_ns() -> dict[str, list[int]]:
    """Interleaved in a new order each round, so that whatever else the machine does falls on all of them alike."""
    order = random.Random(7)
    found: dict[str, list[int]] = {name: [] for name in GUESSES}
    names = list(GUESSES)
    clock, secrets = time.perf_counter_ns, (SECRET, PREVIOUS)
    for _ in range(ROUNDS):
        order.shuffle(names)
        for name in names:
            guess = GUESSES[name]
            began = clock()
            for _ in range(PER_SAMPLE):
                is_one_of(guess, secrets)
            found[name].append(clock() - began)
    return found


def low_half(values: list[int]) -> list[int]:
    """The undisturbed half: interruptions only ever add time."""
    return sorted(values)[: len(values) // 2]


def welch_t(one: list[int], other: list[int]) -> float:
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    return (statistics.fmean(one) - statistics.fmean(other)) / math.sqrt(spread)


def naive(guess: bytes, secret: bytes) -> bool:
    """What must not be done: stops at the first wrong byte."""
    return all(given == stored for given, stored in zip(guess, secret, strict=True))


def test_the_time_does_not_depend_on_the_position_of_the_first_wrong_byte() -> None:
    found = samples_ns()
    means = {name: statistics.fmean(low_half(values)) / PER_SAMPLE for name, values in found.items()}
    print({name: f"{mean:.1f} ns" for name, mean in means.items()})
    base = means["first byte"]
    for name, mean in means.items():
        # A byte-wise comparison would differ by a large part of itself between the first byte and the last.
        assert abs(mean - base) / base < 0.02, (name, means)


def test_the_test_would_notice_a_comparison_that_stops_early() -> None:
    began = time.perf_counter_ns
    times: dict[str, list[int]] = {"first byte": [], "last byte": []}
    for _ in range(2_000):
        for name, values in times.items():
            start = began()
            for _ in range(PER_SAMPLE):
                naive(GUESSES[name], SECRET)
            values.append(began() - start)
    first, last = (low_half(times[name]) for name in ("first byte", "last byte"))
    assert welch_t(last, first) > 10
    assert statistics.fmean(last) > 1.5 * statistics.fmean(first)
