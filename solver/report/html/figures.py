"""Figures drawn with Altair: a drawing's rows as a Vega-Lite chart.

Colours are names of CSS variables, so that one figure suits a light page, a dark one, and paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import altair as alt

    from meshplan.solver.report.html.content import Drawing

Chart: TypeAlias = "alt.LayerChart | alt.FacetChart"

#: Pixels of a row of bars, and of a figure that has none.
_ROW, _HEIGHT = 24, 280
_TEXT, _PAGE = "var(--text)", "var(--page)"
#: The colour that a row names.
_OWN: dict[str, Any] = {"shorthand": "color:N", "scale": None, "legend": None}
#: Room for labels at the ends of bars, in pixels.
_PADDING = {"left": 5, "top": 5, "right": 50, "bottom": 5}
#: Opacity of passes through the first and the last chunk: text stands out from both.
_FILLED = [0.5, 0.12]
#: Pixels below which a bar has no room for its label.
_LETTER = 7


def chart(drawing: Drawing) -> Chart:
    """The chart of a drawing, as wide as what it stands in."""
    drawn: Chart = _CHARTS[drawing.kind](drawing.rows)
    return drawn.properties(width="container", description=drawing.label)


def _memory(rows: list[dict[str, Any]]) -> Chart:
    """Stacked bars by rank, and the capacity as a line."""
    import altair as alt

    base = _base(rows)
    bars = base.mark_bar(stroke=_PAGE, strokeWidth=1).encode(
        x=alt.X("from:Q", title="GiB"),
        x2="to:Q",
        y=_ranks(),
        color=alt.Color(**_OWN),
        tooltip=["rank:O", "part:N", "gib:Q", "peak:Q", "event:N"],
    )
    line = (
        _base(rows[:1], "capacity")
        .mark_rule(stroke=_TEXT, strokeWidth=2, strokeDash=[6, 3])
        .encode(x="capacity:Q", tooltip=["capacity:Q"])
    )
    return alt.layer(bars, line)


def _time(rows: list[dict[str, Any]]) -> Chart:
    """A bar for each part, with its share at the end."""
    import altair as alt

    base = _base(rows).encode(
        x=alt.X("seconds:Q", title="s"),
        y=alt.Y("part:N", sort=None, title=None),
        tooltip=["part:N", "text:N", alt.Tooltip("share:Q", format=".1%")],
    )
    labels = base.mark_text(align="left", dx=4, color=_TEXT).encode(
        text=alt.Text("share:Q", format=".1%")
    )
    return alt.layer(base.mark_bar(color="var(--s1)"), labels, padding=_PADDING)


def _slots(rows: list[dict[str, Any]]) -> Chart:
    """Stacked bars by rank, one piece a slot, with what it holds."""
    import altair as alt

    base = _base(rows).encode(
        y=_ranks(),
        tooltip=["rank:O", "chunk:O", "holds:N", "seconds:Q"],
    )
    bars = base.mark_bar(stroke=_PAGE, strokeWidth=1).encode(
        x=alt.X("start:Q", title="s"), x2="end:Q", color=alt.Color(**_OWN)
    )
    return alt.layer(bars, _inside(base, "holds", _PAGE))


def _schedule(rows: list[dict[str, Any]]) -> Chart:
    """A bar for each pass, with its micro-batch; later chunks of a rank are paler."""
    import altair as alt

    paleness = alt.Scale(domain=[0, max(row["chunk"] for row in rows)], range=_FILLED)
    base = _base(rows).encode(
        y=_ranks(),
        tooltip=["rank:O", "chunk:O", "pass:N", "micro-batch:N", "start:Q", "end:Q"],
    )
    bars = base.mark_bar(strokeWidth=1, strokeOpacity=1, aria=False).encode(
        x=alt.X("start:Q", title="s since the start of the step"),
        x2="end:Q",
        fill=alt.Fill(**_OWN),
        stroke=alt.Stroke(**_OWN),
        fillOpacity=alt.FillOpacity("chunk:Q", scale=paleness, legend=None),
    )
    return alt.layer(bars, _inside(base, "micro-batch", _TEXT))


def _placement(rows: list[dict[str, Any]]) -> Chart:
    """A row for each pipeline rank, a block for each of its NVLink domains."""
    import altair as alt

    base = _base(rows).encode(
        y=alt.Y("stage:O", title="rank", scale=alt.Scale(padding=0.12)),
        tooltip=["stage:O", "domain:O", "gpus:N"],
    )
    bars = base.mark_bar(stroke=_PAGE, strokeWidth=1).encode(
        x=alt.X(
            "start:Q",
            title="GPUs of the rank",
            scale=alt.Scale(nice=False),
            axis=alt.Axis(tickMinStep=1),
        ),
        x2="end:Q",
        color=alt.Color(**_OWN),
    )
    return alt.layer(bars, _inside(base, "domain", _PAGE))


def _pareto(rows: list[dict[str, Any]]) -> Chart:
    """Step time against memory; the plan of the page has a ring."""
    import altair as alt

    base = _base(rows).encode(
        x=alt.X(
            "relative:Q",
            title="step time against this plan",
            axis=_percent(),
            scale=alt.Scale(zero=False, nice=True),
        ),
        y=alt.Y("gib:Q", title="peak memory, GiB", scale=alt.Scale(zero=False)),
        tooltip=["layout:N", alt.Tooltip("relative:Q", format="+.1%"), "gib:Q", "dp:Q"],
    )
    points = base.mark_point(filled=True, size=80, opacity=1).encode(color=alt.Color(**_OWN))
    ring = base.transform_filter("datum.shown").mark_point(
        stroke=_TEXT, strokeWidth=2, size=260, opacity=1
    )
    return alt.layer(points, ring).properties(height=_HEIGHT)


def _relaxations(rows: list[dict[str, Any]]) -> Chart:
    """A bar for each gain of throughput."""
    import altair as alt

    base = _base(rows).encode(
        x=alt.X("gain:Q", title="gain of throughput", axis=_percent()),
        y=alt.Y("change:N", sort=None, title=None),
        tooltip=["what:N", alt.Tooltip("gain:Q", format="+.1%")],
    )
    labels = base.mark_text(align="left", dx=4, color=_TEXT).encode(
        text=alt.Text("gain:Q", format="+.1%")
    )
    return alt.layer(base.mark_bar(color="var(--s2)"), labels, padding=_PADDING)


def _repairs(rows: list[dict[str, Any]]) -> Chart:
    """A bar for the throughput that each change buys, under the change in words."""
    import altair as alt

    base = _base(rows).encode(
        x=alt.X("throughput:Q", title="tokens/s per GPU"),
        y=alt.Y("change:N", sort=None, axis=None),
        tooltip=["change:N", "text:N"],
    )
    bars = base.mark_bar(color="var(--s2)", size=12, yOffset=9)
    figures = base.mark_text(align="left", dx=4, dy=9, color=_TEXT).encode(text="text:N")
    words = base.mark_text(
        align="left", dy=-6, fontSize=12, color=_TEXT, limit=alt.expr("width")
    ).encode(x=alt.datum(0), text="change:N")
    layers = alt.layer(bars, figures, words, padding=_PADDING)
    return layers.properties(height={"step": 2 * _ROW})


def _terms(rows: list[dict[str, Any]]) -> Chart:
    """A bar for each difference, to the right of zero where the first layout takes more."""
    import altair as alt

    base = _base(rows).encode(
        x=alt.X("difference:Q", title="difference, s"),
        y=alt.Y("part:N", sort=None, title=None),
        tooltip=["part:N", "text:N"],
    )
    return alt.layer(base.mark_bar().encode(color=alt.Color(**_OWN)))


def _base(rows: list[dict[str, Any]], name: str = "rows") -> alt.Chart:
    import altair as alt

    return alt.Chart(alt.InlineData(values=rows, name=name), height={"step": _ROW})


def _ranks() -> alt.Y:
    import altair as alt

    return alt.Y("rank:O", title="rank", scale=alt.Scale(padding=0.12))


def _percent() -> alt.Axis:
    """An axis of signed percentages, as many as they are whole."""
    import altair as alt

    return alt.Axis(format="+.0%", tickMinStep=0.01)


def _inside(base: alt.Chart, field: str, color: str) -> alt.Chart:
    """Labels in the middle of bars that have room for them."""
    import altair as alt

    pixels = "scale('x', datum.end) - scale('x', datum.start)"
    room = f"{pixels} > {_LETTER} * length(toString(datum['{field}']))"
    marks: alt.Chart = base.transform_calculate(middle="(datum.start + datum.end) / 2").mark_text(
        color=color, fontSize=11, aria=False, opacity=alt.expr(f"{room} ? 1 : 0")
    )
    return marks.encode(x="middle:Q", text=f"{field}:N")


_CHARTS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "memory": _memory,
    "time": _time,
    "slots": _slots,
    "schedule": _schedule,
    "placement": _placement,
    "pareto": _pareto,
    "relaxations": _relaxations,
    "terms": _terms,
    "repairs": _repairs,
}


__all__ = ["chart"]
