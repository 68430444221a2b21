"""Plans as texts: an array of flags, an array of overrides."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.errors import one_line
from meshplan.solver.export import of_layout, of_training
from meshplan.solver.export.environment import environment
from meshplan.solver.export.of_model import model_words
from meshplan.solver.export.plan_file import StoredPlan
from meshplan.solver.export.setting import Setting, override_text

_Part = Callable[[Problem, Layout], Iterable[Setting]]

#: Parts of a document by their headings.
_PARTS: tuple[tuple[str, tuple[_Part, ...]], ...] = (
    ("degrees", (of_layout.degrees, of_layout.split)),
    ("batch", (of_layout.batch,)),
    ("memory", (of_layout.recompute, of_layout.offload)),
    ("experts", (of_layout.dispatch,)),
    ("CUDA graphs", (of_layout.graphs,)),
    ("number formats", (of_training.precision,)),
    ("optimizer", (of_training.optimizer,)),
    ("recipe", (of_training.recipe,)),
)


def megatron_lm(plan: StoredPlan, written_by: str, *, with_model: bool = False) -> str:
    """Launch flags of Megatron-LM in a bash array, ``MESHPLAN_ARGS``, and exported variables.

    Parameters
    ----------
    written_by
        Name and version of the program, for the first line.
    with_model
        Whether the flags of the model itself come first.
    """
    parts = [(name, _lines(_words(plan, part))) for name, part in _PARTS]
    if with_model:
        parts.insert(0, ("model", _lines([model_words(plan.problem.model)])))
    use = 'torchrun ... pretrain_gpt.py "${MESHPLAN_ARGS[@]}" ...'
    array = _array("MESHPLAN_ARGS", parts, use)
    return "\n".join([*head(plan, written_by), *exports(plan), *array, ""])


def megatron_bridge(plan: StoredPlan, written_by: str) -> str:
    """Overrides of a Megatron-Bridge recipe in a bash array, ``MESHPLAN_OVERRIDES``."""
    parts = [
        (
            name,
            [
                shlex.quote(override_text(key, value))
                for one in _settings(plan, part)
                for key, value in one.overrides.items()
            ],
        )
        for name, part in _PARTS
    ]
    use = 'torchrun ... run_recipe.py ... "${MESHPLAN_OVERRIDES[@]}"'
    notes = [
        "# mixed_precision.* wants a recipe whose mixed_precision is a configuration, not a name.",
        "# Where a recipe has comm_overlap, that decides which communication overlaps.",
    ]
    array = _array("MESHPLAN_OVERRIDES", parts, use)
    return "\n".join([*head(plan, written_by), *notes, *exports(plan), *array, ""])


def summary(plan: StoredPlan) -> Iterator[str]:
    """What the plan is for, in a few lines."""
    problem, layout, data = plan.problem, plan.layout, plan.data
    version = ".".join(str(part) for part in problem.version)
    yield (
        f"{one_line(problem.name)}: {problem.model.title}, {problem.seq_len:,} tokens, "
        f"{problem.precision}, on {layout.gpus:,} x {problem.node_type.gpu}"
    )
    yield (
        f"{data['status']}: step {data['time']['step_s']:.4g} s, peak "
        f"{data['memory']['peak_gib']:.1f} of {data['memory']['capacity_gib']:.1f} GiB (estimates)"
    )
    yield f"dp {layout.dp}, edp {layout.edp}, ga {layout.ga}; for {problem.framework} {version}"


def _settings(plan: StoredPlan, part: tuple[_Part, ...]) -> Iterator[Setting]:
    for function in part:
        yield from function(plan.problem, plan.layout)


def _words(plan: StoredPlan, part: tuple[_Part, ...]) -> list[tuple[str, ...]]:
    return [one.words for one in _settings(plan, part)]


def _lines(words: Iterable[tuple[str, ...]]) -> list[str]:
    """Words in quotes, a flag with its values on a line."""
    flat = [word for some in words for word in some]
    starts = 0

    def line_of(word: str) -> int:
        nonlocal starts
        starts += word.startswith("--")
        return starts

    return [shlex.join(some) for _, some in groupby(flat, line_of)]


def head(plan: StoredPlan, written_by: str) -> Iterator[str]:
    """Comments at the top of a document: who wrote it, and what for."""
    yield f"# Written by {written_by}."
    yield from (f"# {line}" for line in summary(plan))


def exports(plan: StoredPlan) -> Iterator[str]:
    """Lines of a shell script that set the environment variables."""
    for one in environment(plan.problem, plan.layout):
        yield f"export {one.name}={one.value}  # {one.reason}"


def _array(name: str, parts: Iterable[tuple[str, list[str]]], use: str) -> Iterator[str]:
    yield f"{name}=(  # {use}"
    for heading, lines in parts:
        if lines:
            yield f"    # {heading}"
            yield from (f"    {line}" for line in lines)
    yield ")"


__all__ = ["exports", "head", "megatron_bridge", "megatron_lm", "summary"]
