"""How many pipeline slots a scenario's split of the layers allows.

One of three rules holds in a scenario, by ``options.pipeline_layout``: a given layout string, the
framework's even split, or a free split.  The last one describes the search, not the framework,
which accepts empty stages; so a concrete layout is not held to it.
"""

from __future__ import annotations

from meshplan.constraints.pipeline import even_slots, parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule

_SOURCE = "Megatron-LM d98e8a64 megatron/core/transformer/"
_FIELDS = ("options.pipeline_layout", "layout.pp", "layout.vpp")


def _stages(problem: Problem) -> int:
    return len(parse_layout(problem.layout_string or ""))


def _string_explain(problem: Problem, pp: int, vpp: int) -> str:
    return (
        f"the pipeline layout has {_stages(problem)} stages, but pp*vpp = {pp}*{vpp} = {pp * vpp}"
    )


def _even_holds(problem: Problem, pp: int, vpp: int) -> bool:
    mtp = problem.model.mtp_layers > 0
    return even_slots(problem.model.layers, pp, vpp, mtp=mtp) is not None


def _even_explain(problem: Problem, pp: int, vpp: int) -> str:
    return (
        f"{problem.model.layers} layers, with or without embedding and loss counted as one each, "
        f"do not split evenly over pp*vpp = {pp}*{vpp} = {pp * vpp} stages"
    )


def _free_holds(problem: Problem, pp: int, vpp: int) -> bool:
    return pp * vpp <= problem.model.layers + 2


def _free_explain(problem: Problem, pp: int, vpp: int) -> str:
    return (
        f"pp*vpp = {pp}*{vpp} = {pp * vpp} slots are more than {problem.model.layers} layers, "
        "embedding and loss can fill; give a pipeline layout if you want empty stages"
    )


LAYOUT_STAGES = Rule(
    id="layout-stage-count",
    scope=("pp", "vpp"),
    holds=lambda problem, pp, vpp: pp * vpp == _stages(problem),
    explain=_string_explain,
    formula="stages of the pipeline layout == pp*vpp",
    why="Stage i of a layout string is chunk i // pp of pipeline rank i % pp.",
    source=_SOURCE + "pipeline_parallel_layer_layout.py",
    family="pipeline",
    applies=lambda problem: problem.layout_string is not None,
    fields=_FIELDS,
)

LAYERS_SPLIT_EVENLY = Rule(
    id="layers-pp-default",
    scope=("pp", "vpp"),
    holds=_even_holds,
    explain=_even_explain,
    formula="(layers [+ embedding] [+ loss]) % (pp*vpp) == 0",
    why="The framework's even split gives each stage the same number of layers.",
    source=_SOURCE + "transformer_config.py account_for_embedding/loss_in_pipeline_split",
    family="pipeline",
    applies=lambda problem: problem.even_split,
    fields=_FIELDS,
)

SLOTS_HOLD_LAYERS = Rule(
    id="slots-hold-layers",
    scope=("pp", "vpp"),
    holds=_free_holds,
    explain=_free_explain,
    formula="pp*vpp <= layers + 2",
    why="The search leaves no slot empty but the first and the last (embedding, loss).",
    source="meshplan's search space (docs/search.md)",
    family="pipeline",
    applies=lambda problem: problem.layout_string is None and not problem.even_split,
    fields=("layout.pp", "layout.vpp"),
)

#: Exactly one of these applies to a scenario.
SPLIT_RULES: tuple[Rule, ...] = (LAYOUT_STAGES, LAYERS_SPLIT_EVENLY, SLOTS_HOLD_LAYERS)


def split_rule(problem: Problem) -> Rule:
    """The rule that applies to this scenario."""
    return next(rule for rule in SPLIT_RULES if rule.applies(problem))
