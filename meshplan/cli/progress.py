"""The line on standard error that shows a running search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

    from meshplan.solver.progress import Progress

#: Shorter searches show nothing.
_PATIENCE_S = 1.0


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A function that shows progress, or None if nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    status: Status | None = None

    def show(progress: Progress) -> None:
        nonlocal status
        if progress.elapsed_s < _PATIENCE_S:
            return
        if status is None:
            from rich.console import Console

            status = Console(stderr=True).status("")
            status.start()
        status.update(progress_text(progress))

    try:
        yield show
    finally:
        if status is not None:
            status.stop()


def progress_text(progress: Progress) -> str:
    """``12 s   throughput   best step 34.5 s   bound 33.9 s   gap 1.7%``."""
    parts = [f"{progress.elapsed_s:.0f} s", progress.phase]
    best, bound, gap = progress.incumbent_s, progress.bound_s, progress.gap
    parts.append("no plan yet" if best is None else f"best step {best:.4g} s")
    if bound is not None:
        parts.append(f"bound {bound:.4g} s")
    if gap is not None:
        parts.append(f"gap {gap:.1%}")
    return "   ".join(parts)
