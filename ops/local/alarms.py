"""Which alarms would be on: a synthesised template's alarms over the metrics that functions printed.

npx cdk synth --quiet && python -m ops.local.alarms cdk.out/Sluice.template.json pacer.log

The log is what a function wrote: lines that are no embedded metrics are passed over. Without one it prints the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ops.local.alarm_evaluator import AlarmRule, AlarmState, Sample, evaluate


def rules_of(template: Mapping[str, Any]) -> dict[str, AlarmRule]:
    """Every alarm on a metric that is named in full: those on a queue refer to a name that only a deployment knows."""
    return {
        logical_id: AlarmRule.of(resource["Properties"])
        for logical_id, resource in template["Resources"].items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
        and all(isinstance(each["Value"], str) for each in resource["Properties"]["Dimensions"])
    }


def samples_of(lines: Iterable[str]) -> Iterator[Sample]:
    """What CloudWatch would make of a function's output: one sample per metric of each embedded document."""
    for line in lines:
        document = _document(line)
        for group in document.get("_aws", {}).get("CloudWatchMetrics", []):
            for names in group["Dimensions"]:
                for metric in group["Metrics"]:
                    values = document[metric["Name"]]
                    for value in values if isinstance(values, list) else [values]:
                        yield Sample(
                            namespace=group["Namespace"],
                            name=metric["Name"],
                            dimensions={name: document[name] for name in names},
                            at_ms=document["_aws"]["Timestamp"],
                            value=value,
                        )


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@click.command()
@click.argument("template", type=click.Path(exists=True, path_type=Path))
@click.argument("log", type=click.Path(exists=True, path_type=Path), required=False)
def main(template: Path, log: Path | None) -> None:
    """Print the alarm table of TEMPLATE, and the states that it would be in at the end of LOG."""
    rules = rules_of(json.loads(template.read_text(encoding="utf-8")))
    samples = [] if log is None else list(samples_of(log.read_text(encoding="utf-8").splitlines()))
    now_ms = max((each.at_ms for each in samples), default=0)
    table = Table(box=None, pad_edge=False)
    for name in ("alarm", "class", "metric", "when", "missing", "state"):
        table.add_column(name)
    for logical_id, rule in sorted(rules.items()):
        state = "" if log is None else _state(rule, samples, now_ms)
        table.add_row(logical_id[:-8].removeprefix("Alarms"), *_cells(rule), state)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)


def _state(rule: AlarmRule, samples: list[Sample], now_ms: int) -> str:
    """At the end of the period that the last sample lies in."""
    end_ms = now_ms - now_ms % (rule.period_s * 1000) + rule.period_s * 1000
    return evaluate(rule, samples, now_ms=end_ms, before=AlarmState.INSUFFICIENT_DATA).value


def _cells(rule: AlarmRule) -> tuple[str, ...]:
    sign = {"GreaterThanThreshold": ">", "GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}
    when = f"{rule.statistic} {sign.get(rule.comparison, rule.comparison)} {rule.threshold:g}"
    often = f"{rule.m} of {rule.n} x {rule.period_s} s"
    return (", ".join(rule.dimensions.values()), rule.metric, f"{when}, {often}", rule.missing.value)


if __name__ == "__main__":
    main()
