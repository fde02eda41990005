"""`simulate --ledger FILE`: one class of an exported ledger, read and judged as `import` does, for the simulator."""

from __future__ import annotations

from ops.simulator.ledger_drive import ExportedClass
from ops.submission.json_lines import Lines
from ops.submission.source import opened
from ops.transfer.format import Header
from ops.transfer.reading import Reader
from shared.domain.job import Job
from shared.domain.keys import did_you_mean
from shared.domain.records import StoredOutput
from shared.domain.settings import Settings
from shared.errors import InvalidInput


def read_class(file: str, settings: Settings, job_class: str | None) -> ExportedClass:
    """The class that is asked for, or the only one of the file."""
    jobs: list[Job] = []
    outputs: list[StoredOutput] = []
    with opened(file, rewindable=False) as source:
        reader = Reader(Lines(source.stream), settings)
        for number, record in reader:
            if isinstance(record, InvalidInput):
                raise InvalidInput(f"line {number}: {record.field}", got=record.got, expected=record.expected)
            if isinstance(record, Job):
                jobs.append(record)
            elif isinstance(record, StoredOutput):
                outputs.append(record)
    assert reader.header is not None  # a file without one is a fault on its first line
    name = _chosen(reader.header, jobs, job_class)
    ids = {job.job_id for job in jobs if job.job_class == name}
    return ExportedClass(
        at_ms=reader.header.at_ms,
        jobs=[job for job in jobs if job.job_id in ids],
        outputs=[output for output in outputs if output.job_id in ids],
        orders=[order for order in reader.matches.all() if order.job_class == name],
    )


def _chosen(header: Header, jobs: list[Job], asked: str | None) -> str:
    names = sorted({job.job_class for job in jobs}) or sorted(header.names)
    if asked is None and len(names) != 1:
        raise InvalidInput("--class", got="nothing", expected=f"one of {', '.join(names)}: the file has them all")
    if asked is not None and asked not in header.names:
        expected = f"one of {', '.join(names)}{did_you_mean(asked, names)}"
        raise InvalidInput("--class", got="a class that the file has not got", expected=expected)
    return asked or names[0]
