"""One decision of a layout changed, with what follows from it."""

from __future__ import annotations

import dataclasses

from meshplan.constraints.decisions import DEGREES
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.complete import complete_degrees
from meshplan.solver.layout_text import Stated


def with_degree(problem: Problem, stated: Stated, layout: Layout, name: str, value: int) -> Layout:
    """The layout with another value of a degree or of the batch; its slots stay as they are.

    Parameters
    ----------
    stated
        What is fixed; every other degree follows the change.
    """
    given = {**stated.degrees, name: value}
    if name == "gbs" and "ga" not in stated.degrees:
        given.setdefault("mbs", layout.mbs)
    if name == "tp" and not problem.model.is_moe and layout.etp == layout.tp:
        given.pop("etp", None)  # a dense model has no other etp than tp
    plain, _ = complete_degrees(problem, dataclasses.replace(stated, degrees=given))
    degrees = {degree: getattr(plain, degree) for degree in DEGREES}
    return dataclasses.replace(layout, **degrees)
