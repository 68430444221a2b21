"""What a layout decides, as settings of the two frameworks."""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.context import inner_a2a
from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import format_layout
from meshplan.constraints.problem import Problem
from meshplan.solver.export.setting import Setting, flag, setting

#: Release that calls the parts of a layer which CUDA graphs capture modules; before, scopes.
_MODULES_RELEASE = (0, 18)


def degrees(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """Both meshes, and the exchange of context parallelism."""
    tp, cp = layout.tp, layout.cp
    yield setting(flag("tensor-model-parallel-size", tp), model__tensor_model_parallel_size=tp)
    shared = tp > 1 and problem.training.sequence_parallel
    yield setting(flag("sequence-parallel") if shared else (), model__sequence_parallel=shared)
    yield setting(flag("context-parallel-size", cp), model__context_parallel_size=cp)
    yield from exchange(problem, layout)
    yield setting(
        flag("pipeline-model-parallel-size", layout.pp),
        model__pipeline_model_parallel_size=layout.pp,
    )
    if problem.model.is_moe:
        yield setting(
            flag("expert-model-parallel-size", layout.ep),
            model__expert_model_parallel_size=layout.ep,
        )
        yield setting(
            flag("expert-tensor-parallel-size", layout.etp),
            model__expert_tensor_parallel_size=layout.etp,
        )


def exchange(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """How context parallelism exchanges keys and values; nothing without it."""
    if layout.cp == 1:
        return
    yield setting(flag("cp-comm-type", layout.cp_comm), model__cp_comm_type=layout.cp_comm)
    if layout.cp_comm == "a2a+p2p":
        inner = inner_a2a(problem, layout.tp, layout.cp)
        sizes = (inner, layout.cp // inner)
        yield setting(
            flag("hierarchical-context-parallel-sizes", *sizes),
            model__hierarchical_context_parallel_sizes=sizes,
        )


def batch(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """Sequences of a micro-batch and of a step, and their length."""
    yield setting(flag("micro-batch-size", layout.mbs), train__micro_batch_size=layout.mbs)
    yield setting(flag("global-batch-size", layout.gbs), train__global_batch_size=layout.gbs)
    length = problem.seq_len
    yield setting(
        (*flag("seq-length", length), *flag("max-position-embeddings", length)),
        model__seq_length=length,
        dataset__seq_length=length,
    )


def split(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """Layers of each pipeline slot, as a layout string; the number of slots follows from it."""
    if layout.pp * layout.vpp == 1:
        text = None
    else:
        text = format_layout(layout.slots, problem.model.mtp_layers)
    yield setting(
        flag("pipeline-model-parallel-layout", text) if text else (),
        model__virtual_pipeline_model_parallel_size=layout.vpp if layout.vpp > 1 else None,
        model__pipeline_model_parallel_layout=text,
    )


def recompute(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """What is computed again in the backward pass."""
    method, layers = None, None
    if layout.recompute_full:
        method, layers = problem.training.recompute_method, problem.training.recompute_layers
        words = (
            *flag("recompute-granularity", "full"),
            *flag("recompute-method", method),
            *flag("recompute-num-layers", layers),
        )
    elif layout.recompute:
        words = (
            *flag("recompute-granularity", "selective"),
            *flag("recompute-modules", *layout.recompute),
        )
    else:
        words = ()
    yield setting(
        words,
        model__recompute_granularity=layout.granularity,
        model__recompute_modules=layout.recompute or None,
        model__recompute_method=method,
        model__recompute_num_layers=layers,
    )


def offload(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """What is kept on the host: optimizer state, saved inputs of modules."""
    yield setting(
        flag("optimizer-cpu-offload") if layout.offload else (),
        optimizer__optimizer_cpu_offload=layout.offload > 0,
    )
    if layout.offload:
        fraction = layout.offload / 100
        yield setting(
            flag("optimizer-offload-fraction", fraction),
            optimizer__optimizer_offload_fraction=fraction,
        )
    modules = problem.training.activation_offload
    yield setting(
        (*flag("fine-grained-activation-offloading"), *flag("offload-modules", *modules))
        if modules
        else (),
        model__fine_grained_activation_offloading=bool(modules),
        model__offload_modules=modules,
    )


def dispatch(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """How tokens reach their experts."""
    if not problem.model.is_moe:
        return
    yield setting(flag("moe-grouped-gemm"), model__moe_grouped_gemm=True)
    yield dispatcher(layout)
    overlap = problem.training.overlap_expert_communication
    yield setting(
        flag("overlap-moe-expert-parallel-comm") if overlap else (),
        model__overlap_moe_expert_parallel_comm=overlap,
    )
    if problem.training.fused_grouped_mlp:
        yield setting(
            flag("use-transformer-engine-op-fuser"), model__use_transformer_engine_op_fuser=True
        )


def dispatcher(layout: Layout) -> Setting:
    """The token dispatcher."""
    if layout.dispatcher == "alltoall":
        return setting(
            flag("moe-token-dispatcher-type", "alltoall"),
            model__moe_token_dispatcher_type="alltoall",
        )
    return setting(
        (
            *flag("moe-token-dispatcher-type", "flex"),
            *flag("moe-flex-dispatcher-backend", layout.dispatcher),
        ),
        model__moe_token_dispatcher_type="flex",
        model__moe_flex_dispatcher_backend=layout.dispatcher,
        model__moe_shared_expert_overlap=False,
    )


def graphs(problem: Problem, layout: Layout) -> Iterator[Setting]:
    """CUDA graphs.  Megatron-Bridge's recipes have the older name of the field, ``scope``."""
    parts: tuple[str, ...] = layout.cuda_graphs
    implementation = "transformer_engine" if parts else "none"
    if problem.training.full_iteration_graph:
        renamed = problem.version >= _MODULES_RELEASE
        implementation = "full_iteration" if renamed else "local"
        parts = () if renamed else ("full_iteration",)
    words = flag("cuda-graph-impl", implementation) if implementation != "none" else ()
    if parts:
        kind = "modules" if problem.version >= _MODULES_RELEASE else "scope"
        words = (*words, *flag(f"cuda-graph-{kind}", *parts))
    yield setting(words, model__cuda_graph_impl=implementation, model__cuda_graph_scope=parts)


__all__ = [
    "batch",
    "degrees",
    "dispatch",
    "dispatcher",
    "exchange",
    "graphs",
    "offload",
    "recompute",
    "split",
]
