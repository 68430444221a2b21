"""Settings that a person has written and that change nothing in a layout.

Each is legal, for the framework takes it without a word; that is why nobody notices.  Where the
framework refuses it, a rule does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.offloaded import offloaded_activation
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import useful_modules
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind

#: Recompute modules that are accepted where the model has no such part; others break a rule.
_ACCEPTED = ("layernorm", "mlp", "moe", "shared_experts")
#: What the recompute of ``moe`` runs again by itself.
_INSIDE_MOE = ("moe_act", "shared_experts")


def _no_norm(_: LayerKind) -> bool:
    return False


#: Layers that begin an attention or an MLP with a norm, by the module that offloads its input.
_NORM_OF: dict[str, Callable[[LayerKind], bool]] = {
    "attn_norm": lambda kind: kind.attention != "none",
    "mlp_norm": lambda kind: kind.mlp != "none",
}


def idle_settings(problem: Problem, layout: Layout) -> Iterator[str]:
    """A sentence for each setting without effect, with its value and the reason."""
    yield from _modules(problem, layout)
    yield from _full_recompute(problem, layout)
    yield from _offload(problem, layout)
    yield from _of_experts(problem)
    training = problem.training
    if training.fp8_parameters and not problem.is_fp8:
        yield f"training.fp8_parameters = true: with {problem.precision} nothing is kept in FP8"


def _modules(problem: Problem, layout: Layout) -> Iterator[str]:
    useful = useful_modules(problem.model)
    absent = [name for name in layout.recompute if name in _ACCEPTED and name not in useful]
    if absent:
        yield (
            f"recompute of {', '.join(absent)}: {problem.model.name} has no layer where this is "
            "recomputed; leave it out"
        )
    twice = [name for name in layout.recompute if name in _INSIDE_MOE and name not in absent]
    if twice and "moe" in layout.recompute:
        yield f"recompute of {', '.join(twice)}: moe runs it again anyway; leave it out"


def _full_recompute(problem: Problem, layout: Layout) -> Iterator[str]:
    training = problem.training
    if layout.recompute_full:
        return
    written = []
    if training.recompute_method != "uniform":
        written.append(f"training.recompute_method = {training.recompute_method}")
    if training.recompute_layers > 1:
        written.append(f"training.recompute_num_layers = {training.recompute_layers}")
    if written:
        has = f"recompute [{', '.join(layout.recompute)}]" if layout.recompute else "no recompute"
        yield (
            f"{', '.join(written)}: only full recompute reads it, and this layout has {has}; "
            "write options.recompute: full, or leave it out"
        )


def _offload(problem: Problem, layout: Layout) -> Iterator[str]:
    modules = problem.training.activation_offload
    idle = [name for name in modules if not _offloads(problem, layout, name)]
    if not idle:
        return
    plain = replace(layout, recompute=(), recompute_full=False)
    absent = [name for name in idle if not _offloads(problem, plain, name)]
    kinds = problem.cost_kinds
    fused = [name for name in absent if any(_NORM_OF.get(name, _no_norm)(kind) for kind in kinds)]
    if fused:
        yield (
            f"options.activation_offload of {', '.join(fused)}: Transformer Engine fuses this norm "
            "into the linear layer behind it, so there is no input of its own to move; leave it out"
        )
    missing = [name for name in absent if name not in fused]
    if missing:
        yield (
            f"options.activation_offload of {', '.join(missing)}: {problem.model.name} has no such "
            "part; leave it out"
        )
    kept = [name for name in idle if name not in absent]
    if kept:
        how = "full" if layout.recompute_full else f"[{', '.join(layout.recompute)}]"
        yield (
            f"options.activation_offload of {', '.join(kept)}: recompute = {how} saves nothing of "
            "it that could be moved; leave out one of the two"
        )


def _offloads(problem: Problem, layout: Layout, module: str) -> bool:
    """Whether a layer somewhere keeps something of ``module`` on the host."""
    training = problem.training
    alone = replace(problem, training=replace(training, activation_offload=(module,)))
    if layout.recompute_full and training.recompute_method == "block":
        most = max((slot.count for slot in layout.slots), default=0)
        if most > training.recompute_layers:  # the others are not recomputed
            layout = replace(layout, recompute_full=False)
    return any(
        evaluate(offloaded_activation, alone, layout, kind=kind) for kind in problem.cost_kinds
    )


def _of_experts(problem: Problem) -> Iterator[str]:
    training = problem.training
    if problem.model.is_moe:
        return
    written = []
    if training.load_imbalance != 1:
        written.append(f"training.load_imbalance = {training.load_imbalance:g}")
    if training.fused_grouped_mlp:
        written.append("training.fused_grouped_mlp = true")
    if written:
        yield f"{', '.join(written)}: {problem.model.name} has no experts; leave it out"


__all__ = ["idle_settings"]
