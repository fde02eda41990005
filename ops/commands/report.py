"""`report RESULT`: one page, and a picture, of a simulation or a replay."""

from __future__ import annotations

from pathlib import Path

import click

from ops.report.result_file import read_results
from shared.errors import InvalidInput


@click.command(short_help="Draw a simulation's or a replay's result.")
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The page: HTML that needs nothing beside it.")
@click.option("--png", type=click.Path(path_type=Path), help="The picture alone.")
def report(*, result: Path, out: Path | None, png: Path | None) -> None:
    """Draw RESULT, which `simulate --out` or `replay --out` wrote: what was left, when it would be over and when it
    was, what was admitted, the rate against the true limit, what live jobs waited, what was refused, what it cost.
    Of several policies (`simulate --policy all`), all of this, and their rates and their figures side by side.

    \b
    Examples
      python -m ops simulate --scenario limit-drop --seed 7 --policy all --out policies.json
      python -m ops report policies.json --out policies.html
      python -m ops replay day.csv --time TIMESTAMP --limit 8 --out result.json
      python -m ops report result.json --out page.html --png page.png
    """
    # Drawing takes a third of a second to import, which `status` should not wait for.
    from ops.report.page import write_page, write_png  # noqa: PLC0415

    if out is None and png is None:
        raise InvalidInput("--out", got="nothing", expected="where to write the page, or --png for the picture")
    results = read_results(result)
    for path, write in ((out, write_page), (png, write_png)):
        if path is not None:
            try:
                write(results, path)
            except OSError as error:
                reason = (error.strerror or "no file").lower()
                raise InvalidInput(str(path), got=reason, expected="a place that can be written to") from None
            click.echo(f"wrote {path}")
