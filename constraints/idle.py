"""Settings that a person has written and that change nothing in a layout.

Each is legal, for the framework takes it without a word; that is why nobody notices.  Where the
framework refuses it, a rule does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.inputs import captures
from meshplan.constraints.memory.offloaded import offloaded_activation
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import useful_modules
from meshplan.constraints.rules.offload import offloaded_inside_moe
from meshplan.constraints.terms import evaluate
from meshplan.scenarios.model_card import LayerKind

#: Recompute modules that are accepted where the model has no such part; others break a rule.
_ACCEPTED = ("layernorm", "mlp", "moe", "shared_experts")
#: What the recompute of ``moe`` runs again by itself.
_INSIDE_MOE = ("moe_act", "shared_experts")
#: CUDA graphs that keep the input of a norm before experts, or with latent attention, in place.
_GRAPHS_BESIDE = {"attn_norm": ("attn",), "mlp_norm": ("attn", "moe_router")}


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
    if layout.value("cg_mamba") and not any(captures(kind, mamba=1) for kind in problem.cost_kinds):
        yield f"options.cuda_graphs of mamba: {problem.model.name} has no Mamba layer; leave it out"
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


def offloaded_modules(problem: Problem, layout: Layout) -> tuple[str, ...]:
    """Of the modules of ``options.activation_offload`` those of which something is on the host."""
    modules = problem.training.activation_offload
    return tuple(name for name in modules if _offloads(problem, layout, name))


def _offload(problem: Problem, layout: Layout) -> Iterator[str]:
    modules = problem.training.activation_offload
    refused = offloaded_inside_moe(problem) if "moe" in layout.recompute else []  # by a rule
    idle = {*modules} - {*refused} - {*offloaded_modules(problem, layout)}
    plain = replace(layout, cuda_graphs=())
    bare = replace(plain, recompute=(), recompute_full=False)
    kinds = problem.cost_kinds
    how = "full" if layout.recompute_full else f"[{', '.join(layout.recompute)}]"
    reasons: dict[str, list[str]] = {}
    for name in (name for name in modules if name in idle):
        if _offloads(problem, plain, name):
            graphs = " and ".join(_graphs_beside(layout, name))
            reason = (
                f"beside a CUDA graph of {graphs} Megatron-Core leaves it on the GPU; leave out "
                "one of the two"
            )
        elif _offloads(problem, bare, name):
            reason = (
                f"recompute = {how} saves nothing of it that could be moved; leave out one of the "
                "two"
            )
        elif any(_NORM_OF.get(name, _no_norm)(kind) for kind in kinds):
            reason = (
                "Transformer Engine fuses this norm into the linear layer behind it, so there is "
                "no input of its own to move; leave it out"
            )
        else:
            reason = f"{problem.model.name} has no such part; leave it out"
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"options.activation_offload of {', '.join(names)}: {reason}"


def _graphs_beside(layout: Layout, module: str) -> list[str]:
    """CUDA graphs that take the offload of a norm from it.

    Source: Megatron-LM ``transformer_layer.py`` ``_set_offload_modules``.
    """
    return [name for name in _GRAPHS_BESIDE.get(module, ()) if name in layout.cuda_graphs]


def _offloads(problem: Problem, layout: Layout, module: str) -> bool:
    """Whether a layer somewhere keeps something of ``module`` on the host."""
    if _graphs_beside(layout, module):
        return False
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


__all__ = ["idle_settings", "offloaded_modules"]
