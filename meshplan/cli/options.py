"""Options that several commands take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MOST_JOBS = 1024


def _positive(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{value} is not a positive number of seconds.")
    return value


def _jobs(_: click.Context, __: click.Parameter, value: str) -> int | None:
    """The number of processes; None for ``auto``."""
    if value == "auto":
        return None
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= _MOST_JOBS):
        raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 to {_MOST_JOBS}.")
    return int(value)


def scenario_argument(command: _Command) -> _Command:
    """Argument FILE: the scenario."""
    return click.argument("file", metavar="FILE")(command)


def set_option(command: _Command) -> _Command:
    """Option ``--set key=value``."""
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Change a field of the scenario: workload.seq_len=65536. Repeatable.",
    )(command)


def json_option(command: _Command) -> _Command:
    """Option ``--json PATH``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH|-",
        help="Write the result as JSON to a file, or to standard output instead of the report.",
    )(command)


def html_option(command: _Command) -> _Command:
    """Option ``--html PATH``."""
    return click.option(
        "--html",
        "html_path",
        metavar="PATH",
        help="Write the report as one HTML file with figures; needs meshplan[report].",
    )(command)


def quiet_option(command: _Command) -> _Command:
    """Option ``--quiet``."""
    return click.option(
        "--quiet", "-q", is_flag=True, help="Print no report and no progress: exit code and files."
    )(command)


def time_limit_option(command: _Command) -> _Command:
    """Option ``--time-limit S``."""
    return click.option(
        "--time-limit",
        "time_limit_s",
        type=float,
        metavar="S",
        callback=_positive,
        help="Stop after S seconds with the best plan so far and what is proved.",
    )(command)


def jobs_option(command: _Command) -> _Command:
    """Option ``--jobs N``; None for ``auto``."""
    return click.option(
        "--jobs",
        "-j",
        default="auto",
        callback=_jobs,
        metavar="N|auto",
        help="Processes that work at once; auto: one a CPU. 1: all in this process.",
    )(command)


def layout_option(command: _Command) -> _Command:
    """Option ``--layout TEXT``."""
    return click.option(
        "--layout",
        metavar="TEXT",
        help='"tp=1,cp=32,ep=32,pp=8,vpp=4": `meshplan check --help` has all keys. What it leaves '
        "open comes from the scenario's pins, then is completed.",
    )(command)


def arguments_option(command: _Command) -> _Command:
    """Option ``--args FILE``."""
    return click.option(
        "--args",
        "arguments_file",
        metavar="FILE|-",
        help="Take the layout of a Megatron launch script or printed arguments; see "
        "`meshplan import args`.",
    )(command)
