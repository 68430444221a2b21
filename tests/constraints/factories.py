"""Small problems and layouts for tests of the constraints."""

from __future__ import annotations

from typing import Any

from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.pipeline import parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rules import rule
from meshplan.scenarios.cards import load_card
from meshplan.scenarios.model_card import ModelCard
from meshplan.topologies import build_cluster


def card(name: str, **changes: Any) -> ModelCard:
    """A shipped card with some figures changed, checked again."""
    return ModelCard.model_validate({**load_card(name).model_dump(), **changes})


def problem(
    model: str | ModelCard = "toy-moe",
    preset: str = "h100-hgx",
    gpus: int | None = None,
    domains: tuple[int, ...] | None = None,
    **overrides: Any,
) -> Problem:
    """A problem at 4096 tokens in bf16 on 8 GPUs; ``overrides`` are fields of ``Problem``."""
    if gpus is None and domains is None:
        gpus = 8
    fields: dict[str, Any] = {
        "name": "test",
        "model": load_card(model) if isinstance(model, str) else model,
        "cluster": build_cluster(preset, gpus=gpus, domains=domains),
        "seq_len": 4096,
        "precision": "bf16",
        "variable_length": False,
        "candidates": {},
    }
    return Problem(**{**fields, **overrides})


def layout(slots: str = "", **decisions: Any) -> Layout:
    """A layout whose slots are given as a layout string; no slots if it is empty."""
    return Layout(slots=parse_layout(slots) if slots else (), **decisions)


def assert_triple(
    rule_id: str,
    where: Problem,
    *,
    good: tuple[Value, ...],
    bad: tuple[Value, ...],
    neighbour: tuple[Value, ...],
    says: tuple[str, ...],
) -> None:
    """Assert that a rule lets ``good`` and ``neighbour`` pass, and words ``bad`` with numbers.

    The values are in the order of the rule's scope.  ``says`` are parts of the explanation.
    """
    one = rule(rule_id)
    assert len(good) == len(bad) == len(neighbour) == len(one.scope)
    assert one.applies(where), f"{rule_id} can bite in this problem"
    assert one.holds(where, *good)
    assert not one.holds(where, *bad)
    assert one.holds(where, *neighbour)
    text = one.explain(where, *bad)
    missing = [part for part in says if part not in text]
    assert not missing, f"{missing} not in {text!r}"
