"""What the tables of `sluice.toml` must be to one another. Each function yields faults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from shared.domain.config_rules import Values, did_you_mean, dotted, fault, shown
from shared.domain.settings import LOCK_MARGIN_S


def judge_upstreams(classes: Mapping[str, Values], upstreams: Mapping[str, Values]) -> Iterator[str]:
    """Every class names an upstream that exists, and the classes of one upstream do not promise more than all of it."""
    shares: dict[str, dict[str, float]] = {}
    for name, values in classes.items():
        upstream = values.get("upstream")
        if upstream is None:
            continue
        if upstream not in upstreams:
            expected = f"the name of an [upstreams.<name>] table{did_you_mean(upstream, upstreams)}"
            yield fault(dotted("classes", name, "upstream"), shown(upstream), expected)
        elif "upstream_share" in values:
            shares.setdefault(upstream, {})[dotted("classes", name, "upstream_share")] = values["upstream_share"]
    for upstream, by_key in shares.items():
        total = round(math.fsum(by_key.values()), 9)  # ten shares of 0.1 are 1
        if total > 1:
            expected = f"shares of {dotted('upstreams', upstream)} that sum to at most 1"
            yield fault(" + ".join(by_key), f"{total:g}", expected)


def judge_timeouts(general: Values, classes: Mapping[str, Values], upstreams: Mapping[str, Values]) -> Iterator[str]:
    """A tick that dies gives the lock back before the next one; a call ends before Lambda kills its worker."""
    pacer_s = general.get("pacer_timeout_s")
    ticks_s = [values["tick_interval_s"] for values in classes.values() if "tick_interval_s" in values]
    if pacer_s is not None and ticks_s and pacer_s + LOCK_MARGIN_S > min(ticks_s):
        expected = f"at least {LOCK_MARGIN_S} s less than the smallest tick_interval_s, which is {min(ticks_s)}"
        yield fault("sluice.pacer_timeout_s", shown(pacer_s), expected)
    for name, values in classes.items():
        upstream = values.get("upstream") or ""
        call_s = upstreams.get(upstream, {}).get("timeout_s")
        function_s = values.get("function_timeout_s")
        if call_s is not None and function_s is not None and call_s >= function_s:
            expected = f"less than {dotted('classes', name, 'function_timeout_s')}, which is {function_s}"
            yield fault(dotted("upstreams", upstream, "timeout_s"), shown(call_s), expected)
