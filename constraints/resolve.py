"""From a scenario to a :class:`Problem`: look names up, fill defaults in, list what was assumed."""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.decisions import (
    CP_COMM_TYPES,
    DISPATCHERS,
    GRAPH_FLAGS,
    GRAPH_SCOPES,
    RECOMPUTE_FLAGS,
    RECOMPUTE_MODULES,
)
from meshplan.constraints.layout import Value
from meshplan.constraints.parts import on_part, parts_of
from meshplan.constraints.pipeline import LayoutStringError, parse_layout
from meshplan.constraints.problem import Limits, Pin, Problem, Training
from meshplan.scenarios.calibration import Calibration
from meshplan.scenarios.loader import resolve_calibration, resolve_cluster, resolve_model
from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.schema import Scenario
from meshplan.scenarios.self_contained import self_contained
from meshplan.topologies import Cluster, NodeType

#: Largest micro-batch that the search tries by itself.
LARGEST_MICRO_BATCH = 16
#: First and last framework version whose sources the rules were read from.
KNOWN_VERSIONS = ((0, 15), (0, 20))
#: Most batch sizes that a range of global batch sizes may leave open.
MOST_BATCH_SIZES = 64


def powers_of_two(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to ``most``."""
    return tuple(1 << i for i in range(max(1, most).bit_length()))


def resolve(scenario: Scenario) -> Problem:
    """Resolve a scenario.

    Raises
    ------
    InputError
        If the model or cluster cannot be found, or a field contradicts another.
    """
    model = resolve_model(scenario)
    cluster = resolve_cluster(scenario)
    wanted = _wanted_gpus(scenario, cluster)
    gpus = cluster.gpus if wanted is None else wanted
    calibration = resolve_calibration(scenario)
    _check_precision(scenario, cluster.node_type)
    _check_pins(scenario, gpus)
    _check_activation_offload(scenario)
    assumed: list[str] = [*cluster.notes]
    if scenario.cluster.gpus_open and scenario.cluster.use is None:
        assumed.append(f"cluster.use = best: as many of the {gpus:,} GPUs as give most tokens/s")
    candidates = _candidates(scenario, model, gpus)
    text = scenario.options.pipeline_layout
    training = scenario.training
    limits = scenario.limits
    ep_within = limits.ep_within_domain
    if ep_within == "auto":
        ep_within = cluster.node_type.multi_node_nvlink
        if model.is_moe:
            where = "must stay in one NVLink domain" if ep_within else "may leave the node"
            assumed.append(f"limits.ep_within_domain = auto: an EP group {where}")
    assumed += _assumptions(scenario, model)
    assumed += _time_assumptions(scenario, calibration)
    problem = Problem(
        name=scenario.name,
        model=model,
        cluster=cluster,
        seq_len=scenario.workload.seq_len,
        precision=scenario.workload.precision,
        variable_length=scenario.workload.variable_length,
        candidates=candidates,
        pins=tuple(_pins(scenario, candidates)),
        training=Training(
            gradient_bytes=_STATE_BYTES[_state_format(training.gradient_dtype, model)],
            moment_bytes=_STATE_BYTES[_state_format(training.moment_dtype, model)],
            precision_aware=_flag(training.precision_aware_optimizer),
            param_remainders=_flag(training.store_param_remainders),
            distributed_optimizer=training.distributed_optimizer,
            fp8_parameters=_flag(training.fp8_parameters),
            cross_entropy=training.cross_entropy,
            fused_attention=training.attention_backend == "fused",
            sequence_parallel=training.sequence_parallel,
            hidden_dropout=training.hidden_dropout,
            fused_gradients=training.gradient_accumulation_fusion,
            recompute_method=training.recompute_method,
            recompute_layers=training.recompute_num_layers,
            activation_offload=_modules(scenario.options.activation_offload),
            load_imbalance=training.load_imbalance,
            overlap_expert_communication=training.overlap_expert_communication,
            overlap_tensor_communication=training.overlap_tensor_communication,
            fused_grouped_mlp=training.fused_grouped_mlp,
            full_iteration_graph=scenario.options.cuda_graphs == "full_iteration",
        ),
        limits=Limits(
            memory_headroom=limits.memory_headroom,
            min_dp=limits.min_dp,
            tp_within_domain=limits.tp_within_domain,
            ep_within_domain=bool(ep_within),
            dp_tolerance=_tolerance(scenario, calibration),
        ),
        framework=scenario.framework.name,
        version=scenario.framework.release,
        transformer_engine=scenario.framework.transformer_engine_release,
        layout_string=None if text in ("auto", "even") else text,
        even_split=text == "even",
        calibration=calibration,
        assumed=tuple(assumed),
        asked=self_contained(scenario),
        whole=cluster if scenario.cluster.gpus_open or wanted is not None else None,
        gpus_open=scenario.cluster.gpus_open,
    )
    return problem if wanted is None else on_part(problem, parts_of(problem, wanted)[0])


def _wanted_gpus(scenario: Scenario, cluster: Cluster) -> int | None:
    """GPUs of a topology file that the scenario asks for; None if it gives no number."""
    wanted = scenario.cluster
    if wanted.topology is None or (wanted.gpus is None and wanted.nodes is None):
        return None
    key, unit = ("gpus", 1) if wanted.gpus is not None else ("nodes", cluster.node_gpus)
    count = getattr(wanted, key)
    if count * unit > cluster.gpus:
        most = cluster.gpus // unit
        raise scenario.error_at(
            f"cluster.{key}",
            f"cluster.{key} ({count}) is more than the {most} of cluster.topology.",
            f"give at most {most}, or leave {key} out and let the search choose.",
        )
    return int(count * unit)


def _check_precision(scenario: Scenario, node: NodeType) -> None:
    """Refuse a number format that the GPU has no tensor cores for.

    Source: NVIDIA data sheets (FP8 from Hopper, MXFP8 and NVFP4 from Blackwell); Transformer
    Engine ``check_fp8_support``, ``check_mxfp8_support``, ``check_nvfp4_support``.
    """
    precision = scenario.workload.precision
    least = {"bf16": 8, "mxfp8": 10, "nvfp4": 10}.get(precision, 9)
    if node.compute_capability >= least:
        return
    formats = "bf16" if node.compute_capability < 9 else "bf16, fp8-tensor, fp8-current, fp8-block"
    raise scenario.error_at(
        "workload.precision",
        f"workload.precision ({precision}) does not run on {node.gpu} (compute capability "
        f"{node.compute_capability}, {precision} needs {least}).",
        f"use {formats}, or another cluster.",
    )


def _check_pins(scenario: Scenario, gpus: int) -> None:
    """Refuse pins that lie outside what the degree can be at all, whatever the others are."""
    largest_batch = max(int(v) for v in _batch_sizes(scenario))
    stages = 1 << 12
    bounds = {
        **dict.fromkeys(
            ("tp", "cp", "pp", "dp", "ep", "etp", "edp"), (gpus, f"the cluster has {gpus} GPUs")
        ),
        "vpp": (stages, f"no pipeline rank holds more than {stages} virtual stages"),
        "mbs": (largest_batch, f"global_batch_size is {largest_batch}"),
        "ga": (largest_batch, f"global_batch_size is {largest_batch}"),
    }
    for name, (most, why) in bounds.items():
        pin = getattr(scenario.layout, name)
        if pin is not None and pin.minimum > most:
            raise scenario.error_at(
                f"layout.{name}",
                f"layout.{name} ({pin.text}) is more than {most}: {why}.",
                f"write a value from 1 to {most}, or leave {name} open.",
            )


def _check_activation_offload(scenario: Scenario) -> None:
    """Refuse to offload the input of attn_proj alone.

    Source: Megatron-LM ``transformer_config.py``: it is the output of core_attn, whose backward
    pass needs it.
    """
    modules = _modules(scenario.options.activation_offload)
    if "attn_proj" in modules and "core_attn" not in modules:
        raise scenario.error_at(
            "options.activation_offload",
            f"options.activation_offload ([{', '.join(modules)}]) has attn_proj without core_attn.",
            "add core_attn, whose output is what attn_proj reads.",
        )


_STATE_BYTES = {"fp32": 4, "bf16": 2}


def _kind_of_model(model: ModelCard) -> str:
    return "mixture of experts" if model.is_moe else "dense model"


def _state_format(written: str, model: ModelCard) -> str:
    """Format of gradients or moments; ``auto`` follows the published performance recipes.

    Megatron-Bridge trains DeepSeek-V3 with bf16 gradients and moments and the precision-aware
    optimizer; its recipes for dense models keep fp32.
    """
    if written != "auto":
        return written
    return "bf16" if model.is_moe else "fp32"


def _modules(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _flag(value: bool | str) -> bool | None:
    return None if isinstance(value, str) else value


def _candidates(scenario: Scenario, model: ModelCard, gpus: int) -> dict[str, tuple[Value, ...]]:
    """Values that the search may use for each decision when nothing pins it."""
    stages = model.layers + 2 + bool(model.mtp_layers)
    batches = _batch_sizes(scenario)
    candidates: dict[str, tuple[Value, ...]] = {
        "tp": powers_of_two(min(gpus, model.heads)),
        "cp": powers_of_two(min(gpus, max(1, scenario.workload.seq_len // 2))),
        "pp": _pipeline_degrees(scenario, gpus, stages),
        "vpp": tuple(range(1, stages + 1)),
        "ep": powers_of_two(min(gpus, model.experts)) if model.is_moe else (1,),
        "etp": _expert_tensor_degrees(scenario, model, gpus),
        "mbs": powers_of_two(min(LARGEST_MICRO_BATCH, max(batches))),
        "gbs": batches,
        "rc_full": (0, 1),
        "offload": (0, 100),
        "dispatcher": DISPATCHERS if model.is_moe else ("alltoall",),
        "cp_comm": CP_COMM_TYPES,
    }
    useful = useful_modules(model, fused_attention=scenario.training.attention_backend == "fused")
    for flag, module in zip(RECOMPUTE_FLAGS, RECOMPUTE_MODULES, strict=True):
        candidates[flag] = (0, 1) if module in useful else (0,)
    graphs = {"attn", "mlp", "moe_router", "moe_preprocess"}
    if not model.is_moe:
        graphs -= {"moe_router", "moe_preprocess"}
    elif all(kind.mlp == "moe" for kind in model.kinds):
        graphs -= {"mlp"}
    for flag, scope in zip(GRAPH_FLAGS, GRAPH_SCOPES, strict=True):
        candidates[flag] = (0, 1) if scope in graphs else (0,)
    return candidates


def _expert_tensor_degrees(scenario: Scenario, model: ModelCard, gpus: int) -> tuple[Value, ...]:
    """Powers of two; for a dense model those of ``tp``, which its expert grid follows."""
    if model.is_moe:
        return powers_of_two(min(gpus, model.moe_ffn))
    degrees = powers_of_two(min(gpus, model.heads))
    pin = scenario.layout.tp
    return tuple(dict.fromkeys((*degrees, *((pin.values or ()) if pin is not None else ()))))


def _pipeline_degrees(scenario: Scenario, gpus: int, stages: int) -> tuple[Value, ...]:
    """Powers of two, or what a given layout string leaves: the divisors of its stages."""
    text = scenario.options.pipeline_layout
    if text in ("auto", "even"):
        return powers_of_two(min(gpus, stages))
    try:
        given = len(parse_layout(text))
    except LayoutStringError as fault:
        raise scenario.error_at(
            "options.pipeline_layout",
            f'options.pipeline_layout ("{text}") {fault}.',
            'write stages of E, t, m and L split by "|", such as "Et*3|(tt|)*29m|L".',
        ) from None
    return tuple(d for d in range(1, min(given, gpus) + 1) if given % d == 0)


def useful_modules(model: ModelCard, *, fused_attention: bool = True) -> frozenset[str]:
    """Recompute modules that save memory in this model.

    ``core_attn`` is among them only where attention keeps its scores: recomputing fused attention
    saves (almost) nothing and may even raise the peak (Megatron-Bridge pull request 3880).
    """
    modules: set[str] = set() if fused_attention else {"core_attn"}
    if model.attention == "mla":
        modules |= {"mla_up_proj", "layernorm"}
    if model.is_moe:
        modules |= {"moe", "moe_act", "layernorm"}
        if model.shared_ffn:
            modules.add("shared_experts")
    if any(kind.mlp == "dense" for kind in model.kinds):
        modules.add("mlp")
    return frozenset(modules)


def _batch_sizes(scenario: Scenario) -> tuple[int, ...]:
    batch = scenario.workload.global_batch_size
    step = batch.multiple_of
    first = -(-batch.minimum // step) * step
    sizes = range(first, batch.maximum + 1, step)
    if len(sizes) > MOST_BATCH_SIZES:
        raise scenario.error_at(
            "workload.global_batch_size",
            f"workload.global_batch_size ({batch.written()}) leaves {len(sizes)} sizes open, "
            f"more than {MOST_BATCH_SIZES}.",
            "give a larger multiple_of.",
        )
    return tuple(sizes)


def _pins(scenario: Scenario, candidates: dict[str, tuple[Value, ...]]) -> Iterator[Pin]:
    layout = scenario.layout
    for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga"):
        pin = getattr(layout, name)
        if pin is None:
            continue
        if pin.values is not None:
            values: tuple[Value, ...] = pin.values
        elif name in candidates:
            values = tuple(v for v in candidates[name] if pin.allowed(int(v)))
        else:  # derived degrees: any number in the range
            values = range(pin.minimum, pin.maximum + 1)  # type: ignore[assignment]
        yield Pin(name, values, f"layout.{name}", f"layout.{name} = {pin.text}")
    if layout.cp_comm is not None:
        text = f"layout.cp_comm = {layout.cp_comm.text}"
        yield Pin("cp_comm", layout.cp_comm.values, "layout.cp_comm", text)
    yield from _option_pins(scenario)


def _option_pins(scenario: Scenario) -> Iterator[Pin]:
    options = scenario.options
    if options.recompute != "auto":
        modules = options.recompute if isinstance(options.recompute, tuple) else ()
        shown = f"[{', '.join(modules)}]" if modules else options.recompute
        text = f"options.recompute = {shown}"
        full = int(options.recompute == "full")
        yield Pin("rc_full", (full,), "options.recompute", text)
        for flag, module in zip(RECOMPUTE_FLAGS, RECOMPUTE_MODULES, strict=True):
            yield Pin(flag, (int(module in modules),), "options.recompute", text)
    if options.optimizer_offload != "auto":
        percent = round(float(options.optimizer_offload) * 100)
        text = f"options.optimizer_offload = {percent} %"
        yield Pin("offload", (percent,), "options.optimizer_offload", text)
    if options.dispatcher != "auto":
        text = f"options.dispatcher = {options.dispatcher}"
        yield Pin("dispatcher", (options.dispatcher,), "options.dispatcher", text)
    if options.cuda_graphs != "auto":
        scopes = options.cuda_graphs if isinstance(options.cuda_graphs, tuple) else ()
        shown = f"[{', '.join(scopes)}]" if scopes else "none"
        text = f"options.cuda_graphs = {shown}"
        for flag, scope in zip(GRAPH_FLAGS, GRAPH_SCOPES, strict=True):
            yield Pin(flag, (int(scope in scopes),), "options.cuda_graphs", text)


#: Plans further apart than this are no ties, however bad the calibration.
_WIDEST_TIE = 0.2


def _tolerance(scenario: Scenario, calibration: Calibration) -> float:
    """Share of the throughput given up for more DP; by default what cannot be told apart."""
    written = scenario.objective.dp_tolerance
    return min(calibration.error_band, _WIDEST_TIE) if isinstance(written, str) else written


def _time_assumptions(scenario: Scenario, calibration: Calibration) -> Iterator[str]:
    if scenario.objective.dp_tolerance == "auto" and calibration.error_band > _WIDEST_TIE:
        yield (
            f"objective.dp_tolerance = {_WIDEST_TIE:.1%}, the most that is taken for a tie: the "
            f"error band of the calibration {calibration.name} is {calibration.error_band:.1%}, "
            "too much to tell plans apart"
        )
    elif scenario.objective.dp_tolerance == "auto":
        yield (
            f"objective.dp_tolerance = {calibration.error_band:.1%}, the error band of the "
            f"calibration {calibration.name}: closer plans are ties"
        )
    if scenario.options.cuda_graphs == "full_iteration":
        yield "memory: the pool of a full-iteration CUDA graph is not known and left out"
    if scenario.training.overlap_expert_communication:
        yield (
            "memory: what overlapped expert communication keeps of a second micro-batch without a "
            "pipeline, about a layer, is left out"
        )


def _memory_assumptions(scenario: Scenario) -> Iterator[str]:
    """Defaults of the software that decide memory."""
    training, framework = scenario.training, scenario.framework
    if "transformer_engine" not in framework.model_fields_set:
        yield f"framework.transformer_engine = {framework.transformer_engine}"
    if "attention_backend" not in training.model_fields_set:
        yield f"training.attention_backend = {training.attention_backend}: no scores are kept"
    if training.recompute_method == "block" or training.recompute_num_layers > 1:
        layers = training.recompute_num_layers
        yield f"training: full recompute is {training.recompute_method}, {layers} layers"


def _assumptions(scenario: Scenario, model: ModelCard) -> Iterator[str]:
    """Defaults that can decide the answer, in the scenario's own field names."""
    given = scenario.model_fields_set
    training = scenario.training
    gradients = _state_format(training.gradient_dtype, model)
    moments = _state_format(training.moment_dtype, model)
    yield (
        f"training: gradients in {gradients}, Adam moments in {moments}, "
        f"{training.cross_entropy} cross entropy"
        + ("" if "training" in given else f" (defaults for a {_kind_of_model(model)})")
    )
    if scenario.workload.precision != "bf16" and training.fp8_parameters == "auto":
        yield "training.fp8_parameters = auto: weights of the layers are kept in 8 bits or fewer"
    yield from _memory_assumptions(scenario)
    if model.is_moe and training.load_imbalance == 1.0:
        yield "training.load_imbalance = 1.0: tokens spread evenly over the experts"
    if "limits" not in given or "memory_headroom" not in scenario.limits.model_fields_set:
        yield f"limits.memory_headroom = {scenario.limits.memory_headroom:.2f} of the usable HBM"
    if "precision" not in scenario.workload.model_fields_set:
        yield "workload.precision = bf16"
    if scenario.layout.mbs is None:
        yield f"layout.mbs: powers of two up to {LARGEST_MICRO_BATCH}"
    free = [n for n in ("tp", "cp", "ep", "etp", "pp") if getattr(scenario.layout, n) is None]
    if free:
        yield f"layout.{', layout.'.join(free)}: powers of two"
    if "cuda_graphs" not in scenario.options.model_fields_set:
        yield "options.cuda_graphs = none"
    known = KNOWN_VERSIONS[0] <= scenario.framework.release[:2] <= KNOWN_VERSIONS[1]
    first, last = (".".join(map(str, version)) for version in KNOWN_VERSIONS)
    doubt = "" if known else f" (the rules were read from {first} to {last}: treat with care)"
    yield f"framework: {scenario.framework.name} {scenario.framework.version}{doubt}"
