"""Results print as their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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

    def _repr_html_(self) -> str:
        from meshplan.solver.report.html.notebook import notebook_fragment

        return notebook_fragment(cast("Result", self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Both, for IPython, whose plain text is the report instead of all fields."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}


__all__ = ["Shown"]
