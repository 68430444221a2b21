"""Results print as their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from meshplan.solver.report.text import Result


class Shown:
    """A result whose text is its report, and its HTML in a notebook, too."""

    def __str__(self) -> str:
        from meshplan.solver.report.text import render_text

        return render_text(cast("Result", self))

    def _repr_html_(self) -> str:
        from meshplan.solver.report.html.notebook import notebook_fragment

        return notebook_fragment(cast("Result", self))


__all__ = ["Shown"]
