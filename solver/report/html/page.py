"""A result as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshplan.solver.compare.diff import DiffReport
from meshplan.solver.compare.why import WhyReport
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.report.compare_data import DIFF_NAMES, WHY_NAMES
from meshplan.solver.report.html.compare import compare_sections
from meshplan.solver.report.html.diagnosis import diagnosis_sections
from meshplan.solver.report.html.heading import heading
from meshplan.solver.report.html.layout import layout_sections
from meshplan.solver.report.html.plans import plan_sections
from meshplan.solver.report.html.remarks import remark_sections, trouble_sections
from meshplan.solver.report.html.templates import template
from meshplan.solver.report.html.vega import need_plotting, vega_library, vega_spec
from meshplan.solver.report.why import telling

if TYPE_CHECKING:
    from meshplan.solver.report.html.content import Section
    from meshplan.solver.report.text import Result


def html_page(result: Result) -> str:
    """The report as a whole page.  All figures come from the result's JSON, which it holds.

    Raises
    ------
    InputError
        If Altair or vl-convert is not installed.
    """
    need_plotting()
    data = result.to_json()
    found = list(sections(result, data))
    specs = {
        f"{section.name}-{drawing.kind}": vega_spec(drawing)
        for section in found
        for drawing in section.drawings
    }
    return template("page.html").render(
        heading=heading(result, data),
        sections=found,
        specs=specs,
        library=vega_library() if specs else "",
        result=data,
        text=json.dumps(data, indent=2, ensure_ascii=False),
    )


def sections(result: Result, data: dict[str, Any]) -> Iterator[Section]:
    """All that a result has to show, in order."""
    if isinstance(result, WhyReport):
        given = data["given"]
        yield from trouble_sections(given)
        yield from trouble_sections(data["optimum"])
        yield from compare_sections(telling(data), WHY_NAMES, WHY_NAMES)
        for section in layout_sections(given):
            yield replace(section, title=f"{section.title}, given layout")
        yield from remark_sections({"assumed": given["assumed"]})
    elif isinstance(result, DiffReport):
        yield from compare_sections(data, DIFF_NAMES, ("A", "B"))
    elif isinstance(result, Diagnosis):
        yield from diagnosis_sections(data)
        yield from remark_sections({"assumed": data["assumed"]})
    else:
        yield from trouble_sections(data)
        yield from layout_sections(data)
        yield from plan_sections(data)
        yield from remark_sections(data)


__all__ = ["html_page", "sections"]
