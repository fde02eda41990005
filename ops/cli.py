"""The command line: its commands, its global options, and how every failure ends in one line and an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from ops.access import AwsAccess
from ops.commands.concurrency import concurrency
from ops.commands.drill import drill
from ops.commands.explain import explain
from ops.commands.export import export
from ops.commands.guard import guard
from ops.commands.import_ import import_
from ops.commands.jobs import dead, replace, retry, skip
from ops.commands.options import FAILED, INTERRUPTED, NO_ANSWER, WRONG_INPUT
from ops.commands.pause import halt, pause, resume, webhook
from ops.commands.plan import plan
from ops.commands.rate import rate
from ops.commands.replay import replay
from ops.commands.report import report
from ops.commands.simulate import simulate
from ops.commands.status import status
from ops.commands.submit import submit
from ops.commands.watch import watch
from ops.wording import sentence_of
from shared.errors import ConfigError, InvalidInput, Retryable, SluiceError

_QUOTES_THE_REQUEST: Final = ("Validation", "InvalidParameter", "Serialization", "Malformed")
"""Parts of the codes of errors whose text repeats what was sent, which may be a payload (I12)."""


class Commands(click.Group):
    """A group whose commands never end in a traceback: an operator reads one line and acts on it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _end(ctx, INTERRUPTED, "interrupted")
        except ConfigError as error:
            _end(ctx, WRONG_INPUT, *error.faults)
        except InvalidInput as error:
            _end(ctx, WRONG_INPUT, str(error))
        except Retryable as error:
            _end(ctx, NO_ANSWER, f"{sentence_of(error)} Nothing is lost: try again.")
        except SluiceError as error:
            _end(ctx, FAILED, sentence_of(error))
        except BrokenPipeError:
            raise
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            _end(ctx, FAILED, _unexpected(error))


def _end(ctx: click.Context, code: int, *lines: str) -> None:
    for line in lines:
        click.echo(f"error: {' '.join(line.split())}", err=True)
    ctx.exit(code)


def _unexpected(error: Exception) -> str:
    """One line without the error's own words where these may quote a row: `--traceback` shows them."""
    kind = type(error).__name__
    if type(error).__module__.partition(".")[0] != "botocore":
        return f"{kind} (a fault of Sluice's own; --traceback shows where)"
    answered = getattr(error, "response", None)
    if answered is not None and any(quotes in answered["Error"]["Code"] for quotes in _QUOTES_THE_REQUEST):
        return f"AWS: {answered['Error']['Code']} ({kind}; --traceback shows what AWS said)"
    return f"AWS: {kind}: {' '.join(str(error).split())[:300]}"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The configuration; by default $SLUICE_CONFIG, ./sluice.toml, or the project's own.",
)
@click.option(
    "--outputs",
    type=click.Path(path_type=Path),
    envvar="SLUICE_OUTPUTS",
    help="What `cdk deploy --outputs-file` wrote; without it, the SLUICE_ variables name the deployment's resources.",
)
@click.option("--traceback", is_flag=True, help="Show where an unexpected error came from.")
@click.pass_context
def main(ctx: click.Context, config: Path | None, outputs: Path | None, traceback: bool) -> None:
    """Operate Sluice: submit jobs, see what they do, stop and resume them.

    \b
    Exit codes
      0    done
      1    it failed, or a part of it: the output says which
      2    the command line, the configuration or the input's form is wrong; nothing was done
      3    AWS did not answer; try again
      130  interrupted

    \b
    Example
      python -m ops --outputs outputs.json status
    """
    del traceback  # read by Commands.invoke, which also sees what goes wrong before this
    if ctx.obj is None:  # tests bring their own
        ctx.obj = AwsAccess(config=config, outputs=outputs, variables=os.environ)


for command in (
    concurrency, dead, drill, explain, export, guard, halt, import_, pause, plan, rate,
    replace, replay, report, resume, retry, simulate, skip, status, submit, watch, webhook,
):  # fmt: skip
    main.add_command(command)
