"""Decisions of a layout changed, with what follows from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from meshplan.constraints.decisions import DEGREES
from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.complete import complete_degrees
from meshplan.solver.layout_text import Stated


def with_degrees(
    problem: Problem, stated: Stated, layout: Layout, values: Mapping[str, int]
) -> Layout:
    """The layout with other values of degrees or of the batch; its slots stay as they are.

    Parameters
    ----------
    stated
        What is fixed; every other degree follows the change.
    """
    given = {**stated.degrees, **values}
    if "gbs" in values and "ga" not in stated.degrees:
        given.setdefault("mbs", layout.mbs)
    dense_follows = "tp" in values and "etp" not in values and layout.etp == layout.tp
    if dense_follows and not problem.model.is_moe:
        given.pop("etp", None)  # a dense model has no other etp than tp
    plain, _ = complete_degrees(problem, dataclasses.replace(stated, degrees=given))
    degrees = {degree: getattr(plain, degree) for degree in DEGREES}
    return dataclasses.replace(layout, **degrees)
