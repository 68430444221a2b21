"""Charts as Vega specifications, and the Vega library itself: nothing is loaded from elsewhere."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from meshplan.solver.extras import need
from meshplan.solver.report.html.figures import chart

if TYPE_CHECKING:
    from meshplan.solver.report.html.content import Drawing

_MUTED, _GRID = "var(--muted)", "var(--grid)"
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _MUTED,
        "titleColor": _MUTED,
        "gridColor": _GRID,
        "domainColor": _GRID,
        "tickColor": _GRID,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 160,
        "labelSeparation": 8,
    },
    "axisY": {"grid": False},
}


def need_plotting() -> None:
    """Make sure that the libraries of the figures are there.

    Raises
    ------
    InputError
        If one is not; the advice says how to install them.
    """
    for module in ("altair", "vl_convert"):
        need(module, "report", "an HTML report")


def vega_spec(drawing: Drawing) -> dict[str, Any]:
    """The Vega specification of a drawing."""
    import vl_convert

    spec = chart(drawing).to_dict()
    spec["config"] = _CONFIG
    vega: dict[str, Any] = vl_convert.vegalite_to_vega(spec, vl_version=_version())
    return vega


@cache
def vega_library() -> str:
    """JavaScript that defines ``vegaEmbed``: the library and all that it needs, minified."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _version())
    return script


def _version() -> str:
    """The release of Vega-Lite that Altair writes, as ``6.4``."""
    import altair

    return ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


__all__ = ["need_plotting", "vega_library", "vega_spec"]
