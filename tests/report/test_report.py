"""The report draws what a result says: one page that needs nothing else, one picture, the same bytes every time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.report.page import draw_all, tiles, verdict, write_page, write_png
from ops.report.result_file import RunResult, read_results
from shared.errors import InvalidInput


def tick(number: int, **changes: Any) -> dict[str, Any]:
    values = {
        "t_s": 60.0 * (number + 1),
        "waiting_live": 5,
        "waiting_recovery": 400 - 40 * number,
        "in_flight": 30,
        "later": 0,
        "budget": 45,
        "admitted": 40,
        "rate_per_s": 0.7,
        "true_limit_per_s": 0.8,
        "refusals": number % 2,
        "calls": 42,
        "eta_said_s": None if number == 0 else 600.0 - 60 * number,
        "eta_true_s": 610.0 - 60 * number,
        "live_wait_s": 30.0,
    }
    return values | changes


FIGURES: dict[str, Any] = {
    "scenario": "outage-40k",
    "seed": 7,
    "policy": "paced",
    "jobs": 440,
    "done": 440,
    "drain_s": 600.0,
    "ideal_drain_s": 550.0,
    "utilisation": 0.953,
    "refusals_per_1000": 1.25,
    "eta_error_median": 0.04,
    "live_wait_p95_s": 48.0,
    "over_budget_ticks": 0,
    "cost_per_job_usd": 2.5e-05,
    "violations": {},
    "failed": [],
}


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    return path


def result(tmp_path: Path, **changes: Any) -> RunResult:
    document = FIGURES | {"series": [tick(number) for number in range(10)]} | changes
    (only,) = read_results(written(tmp_path, document))
    return only


def test_the_verdict_is_one_line_that_says_whether_it_was_good(tmp_path: Path) -> None:
    assert verdict(result(tmp_path)) == (
        "440 of 440 jobs done in 10 min (at best 9.17 min): every invariant held",
        True,
    )
    text, good = verdict(result(tmp_path, violations={"I1": 2}))
    assert (text.endswith("I1 broke 2 times"), good) == (True, False)
    text, good = verdict(result(tmp_path, drain_s=None, done=12))
    assert (text.startswith("12 of 440 jobs done, not drained"), good) == (True, False)


def test_the_numbers_on_top_are_those_of_the_result(tmp_path: Path) -> None:
    assert [value for _, value in tiles(result(tmp_path))] == ["95.3%", "1.25", "4%", "48 s", "0", "$25"]


def test_the_waste_is_said_beside_the_cost_where_it_is_known(tmp_path: Path) -> None:
    assert tiles(result(tmp_path, waste_per_job_usd=5e-7))[-1][0] == "per million jobs, 2.00% wasted"
    assert tiles(result(tmp_path))[-1][0] == "per million jobs"


def test_the_page_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    write_page([result(tmp_path)], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()

    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 1
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", page)
    assert "every invariant held" in page


def test_names_from_the_file_are_text_and_not_markup(tmp_path: Path) -> None:
    write_page([result(tmp_path, scenario="<script>alert(1)</script>")], tmp_path / "page.html")

    assert "<script" not in (tmp_path / "page.html").read_text()


def test_the_picture_is_a_png_and_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_png([result(tmp_path)], tmp_path / f"{name}.png")
        write_page([result(tmp_path)], tmp_path / f"{name}.html")

    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


@pytest.mark.parametrize(
    "series",
    [
        [tick(0)],  # one tick
        [tick(0, eta_said_s=None, eta_true_s=None), tick(1, eta_said_s=None, eta_true_s=0.0)],  # nothing to say
        [tick(0), tick(1, eta_said_s=9e9), tick(2)],  # hardly moves
        [tick(number, paused=number in (1, 2), admitted=0, calls=0, refusals=0) for number in range(4)],
        [{"t_s": 60.0}, {"t_s": 60.0}],  # two ticks at once that say nothing else
    ],
)
def test_whatever_a_run_was_like_it_is_drawn(tmp_path: Path, series: list[dict[str, Any]]) -> None:
    write_png([result(tmp_path, series=series, live_wait_p95_s=None)], tmp_path / "page.png")

    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "RESULT: got an array"),
        ({"jobs": 3}, "series: got nothing"),
        ({"series": []}, "series: got no ticks"),
        ({"series": [3]}, "series[0]: got a whole number"),
        ({"series": [{}]}, "series[0].t_s: got nothing"),
        ({"series": [{"t_s": 1, "budget": "many"}]}, "series[0].budget: got a string"),
        ({"series": [{"t_s": float("inf")}]}, "series[0].t_s: got "),
        ({"policies": []}, "policies: got an array"),
        ({"policies": [FIGURES | {"series": []}]}, "policies: got no ticks"),
        ({"policies": [FIGURES]}, "policies[0].series: got nothing"),
        ({"policies": [{"series": [tick(0)]}, {"series": [{"t_s": "x"}]}]}, "policies[1].series[0].t_s: got a string"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_key(tmp_path: Path, document: object, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_results(written(tmp_path, document))

    assert str(caught.value).startswith(said)


def test_the_command_writes_both(tmp_path: Path) -> None:
    source = written(tmp_path, FIGURES | {"series": [tick(0), tick(1)]})
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    answer = CliRunner().invoke(main, ["report", str(source), "--out", str(page), "--png", str(picture)])

    assert (answer.exit_code, page.exists(), picture.exists()) == (0, True, True)


def policies(tmp_path: Path) -> Path:
    """Two that learn a rate, and one that has no ticks."""
    learning = [
        FIGURES | {"policy": name, "series": [tick(number, learned_per_s=rate) for number in range(10)]}
        for name, rate in (("paced", 0.75), ("halving", 0.4))
    ]
    return written(tmp_path, {"policies": [*learning, FIGURES | {"policy": "enqueue-all", "series": []}]})


def test_policies_on_one_seed_are_drawn_in_one_picture_and_one_page(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    answer = CliRunner().invoke(main, ["report", str(policies(tmp_path)), "--out", str(page), "--png", str(picture)])

    assert answer.exit_code == 0, answer.output
    text = page.read_text()
    assert text.count("<svg") == 3  # side by side, and each that has ticks
    assert "<td><b>paced</b></td><td><b>halving</b></td><td><b>enqueue-all</b></td>" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_rates_that_policies_learned_are_lines_of_one_chart(tmp_path: Path) -> None:
    rates = draw_all(read_results(policies(tmp_path))).axes[0]
    lines = {line.get_label(): set(line.get_ydata()) for line in rates.get_lines()}  # type: ignore[arg-type]

    assert lines == {"true limit": {0.8}, "paced": {0.75}, "halving": {0.4}}


@pytest.mark.parametrize("options", [[], ["--out", "/no/such/folder/page.html"]])
def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path, options: list[str]) -> None:
    source = written(tmp_path, FIGURES | {"series": [tick(0)]})
    answer = CliRunner().invoke(main, ["report", str(source), *options])

    assert answer.exit_code == 2
    assert answer.stderr.count("\n") == 1
