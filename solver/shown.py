"""Results print as their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from meshplan.solver.report.text import Result


class Shown:
    """A result that shows itself: as text, in a notebook, and as a page of its own."""

    def __str__(self) -> str:
        from meshplan.solver.report.text import render_text

        return render_text(cast("Result", self))

    def to_html(self) -> str:
        """The report as an HTML page with figures, which needs no other file.

        Raises
        ------
        InputError
            If the libraries of the extra ``report`` are not installed.
        """
        from meshplan.solver.report.html.page import html_page

        return html_page(cast("Result", self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the report where IPython has text alone."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from meshplan.solver.report.html.notebook import notebook_fragment

        return notebook_fragment(cast("Result", self))


__all__ = ["Shown"]
