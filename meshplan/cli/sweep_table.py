"""The rows of a sweep as a table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshplan.sweeps.result import Sweep

#: Rows that are shown; a file has all.
_MOST_ROWS = 200
_NUMBERS = ("DP", "step s", "tokens/s/GPU", "MFU %", "peak GiB")


def show_sweep(sweep: Sweep) -> None:
    """Print a row for each scenario, then how many there are of each status."""
    import click

    from meshplan.cli.text_table import print_table

    fields = [axis.field for axis in sweep.axes]
    # The last key of a path is enough where no other field ends so.
    ends = [field.rpartition(".")[2] for field in fields]
    heads = [
        end if ends.count(end) == 1 else field for end, field in zip(ends, fields, strict=True)
    ]
    rows = [
        (*(_value(row[field]) for field in fields), *_figures(row))
        for row in sweep.rows[:_MOST_ROWS]
    ]
    numbers = [head for head, axis in zip(heads, sweep.axes, strict=True) if _numeric(axis.values)]
    print_table(
        rows,
        columns=[*heads, "status", *_NUMBERS, "layout or conflict"],
        numbers=[*numbers, *_NUMBERS],
        keys=len(fields),
    )
    if len(sweep.rows) > _MOST_ROWS:
        click.echo(f"and {len(sweep.rows) - _MOST_ROWS:,} more\n")
    click.echo(str(sweep))


def _numeric(values: tuple[Any, ...]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Status, the numbers, and in words what the plan is or what clashes."""
    if row["step_s"] is None:
        return (row["status"], *[""] * len(_NUMBERS), row["conflict"] or row["error"] or "")
    degrees = " ".join(
        f"{name}={row[name]}" for name in ("tp", "cp", "pp", "vpp", "ep", "mbs", "ga")
        if row[name] > 1
    )  # fmt: skip
    return (
        row["status"],
        f"{row['dp']:,}",
        # No exponent: 12,335 s are more easily read than 1.233e+04.
        f"{row['step_s']:,.0f}" if row["step_s"] >= 1000 else f"{row['step_s']:.4g}",
        f"{row['tokens_per_s_per_gpu']:,.0f}",
        f"{100 * row['mfu']:.1f}",
        f"{row['peak_gib']:.1f}",
        degrees or "all degrees 1",
    )


__all__ = ["show_sweep"]
