"""The group of all commands, and what happens when one of them fails."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from meshplan import __version__
from meshplan.cli.calibrate import calibrate
from meshplan.cli.check import check
from meshplan.cli.clusters import clusters
from meshplan.cli.diagnose import diagnose
from meshplan.cli.diff import diff
from meshplan.cli.exit_codes import BAD_INPUT, DEBUG_VARIABLE, OUR_FAULT, STOPPED
from meshplan.cli.export import export
from meshplan.cli.flops import flops
from meshplan.cli.imports import imports
from meshplan.cli.limits import limits
from meshplan.cli.memory import memory
from meshplan.cli.models import models
from meshplan.cli.place import place
from meshplan.cli.rules import explain, rules
from meshplan.cli.schema import schema
from meshplan.cli.solve import solve
from meshplan.cli.sweep import sweep
from meshplan.cli.test import test
from meshplan.cli.why import why


class PlainGroup(click.Group):
    """A group whose commands fail in words: one message on standard error, and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what goes wrong into a message."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from meshplan.scenarios.errors import printable

            said = error.format_message()
            if printable(said) == said:
                raise
            # What the user typed, as it stands in the message.
            raise click.UsageError(printable(said), getattr(error, "ctx", ctx)) from None
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            ctx.exit(STOPPED)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe has gone
        except Exception as error:
            _explain(ctx, error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order in which people meet them."""
        return list(self.commands)


def _explain(ctx: click.Context, error: Exception) -> None:
    from meshplan.scenarios.errors import InputError, one_line

    if isinstance(error, InputError):
        click.echo(f"Error: {error}", err=True)
        ctx.exit(BAD_INPUT)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EPIPE, errno.EIO):
        # Standard output is full or gone; files of ours raise InputError.
        click.echo(f"Error: cannot write the output ({error.strerror})", err=True)
        ctx.exit(BAD_INPUT)
    if os.environ.get(DEBUG_VARIABLE) == "1":
        raise error
    text = one_line(" ".join(str(error).split())[:300])
    click.echo(
        f"meshplan {__version__} failed; this is our fault, not yours.\n"
        f"  {type(error).__name__}: {text}\n"
        f"Please report it with your scenario; {DEBUG_VARIABLE}=1 shows the whole traceback.",
        err=True,
    )
    ctx.exit(OUR_FAULT)


@click.group(
    cls=PlainGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 as hoped, 1 not (check, test), 2 bad input, 3 proved infeasible, "
    "4 stopped by a limit.",
)
@click.version_option(__version__, prog_name="meshplan")
def application() -> None:
    """Find the best parallel layout for a training run, and prove that none is better."""
    if sys.stdout is None:  # closed by the caller, who then wants exit code and files alone
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Unicode shows '?' for a bar instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


for _command in (
    solve, check, diagnose, limits, why, diff, memory, place, flops, test, sweep, export, calibrate,
    imports, rules, explain, models, clusters, schema,
):  # fmt: skip
    application.add_command(_command)
