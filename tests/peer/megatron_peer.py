"""Ask the installed megatron-core what it makes of training arguments, on a machine without GPUs.

A program of its own, run by the Python of an environment with the extra ``peer``; meshplan is not
imported.  It reads one JSON object a line and answers each with one line, in order::

    {"query": "check", "argv": ["--num-layers", "4", ...], "world": 8, "capability": 9}
    {"query": "rank_groups", "world": 16, "tp": 2, "cp": 2, "pp": 2, "ep": 4, "etp": 1}
    {"query": "layout", "text": "Et*2|tL", "pp": 2, "layers": 3, "mtp": 0}
    {"query": "overrides", "texts": ["model.context_parallel_size=2", ...]}

``check`` goes through the stages of a start-up in their order, each of them Megatron's own code
(see ``STAGES``), and reports the first refusal.  What it pretends, because the machine has none:
the compute capability of the GPU, a Transformer Engine release, and kernels of the fused
dispatchers.  What those would refuse is not asked.  With ``"report": {"model": [names], ...}`` it
answers with the values of these fields in the configurations of model, optimizer and gradient
buffers (``ddp``), and in the arguments (``args``), too.  ``overrides`` is what Hydra, whose parser
Megatron-Bridge uses, makes of override strings.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.peer.megatron_machine import Megatron, PastChecksError, load, past_checks, replaced

#: Names of the groups in ``rank_groups``, by the description that Megatron gives them.
GROUP_NAMES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "etp_ep",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
}
#: Error texts of a stage that got as far as a machine without GPUs lets it.
WANTS_GPU = ("compiled with CUDA", "NVIDIA driver", "pin_memory", "Invalid device", "meta tensor")


class Refusal(Exception):
    """What this program itself refuses to take for an acceptance."""


# -- stages of a start-up ----------------------------------------------------------------------


class Case:
    """One ``check``: what the stages leave to one another."""

    def __init__(self, megatron: Megatron, query: dict[str, Any]) -> None:
        self.megatron = megatron
        self.query = query
        self.args: Any = None
        self.config: Any = None
        self.optimizer: Any = None
        self.buffers: Any = None
        self.found: dict[str, Any] = {}

    def arguments(self) -> None:
        """Parse and validate the arguments as the training script does."""
        args = self.megatron.parser.parse_args(list(self.query["argv"]))
        args._is_global_batch_size_explicitly_specified = args.global_batch_size is not None
        args.rank, args.world_size = 0, self.query["world"]
        self.megatron.arguments.validate_args(args)
        self.args = args

    def transformer_config(self) -> None:
        """Build TransformerConfig or MLATransformerConfig."""
        vpp, args = self.query.get("vpp"), self.args
        if vpp is not None and (args.virtual_pipeline_model_parallel_size or 1) != vpp:
            # The script takes it from the layout string; the configuration compares the two.
            args.virtual_pipeline_model_parallel_size = vpp
        self.config = self.megatron.arguments.core_transformer_config_from_args(self.args)
        if self.config.virtual_pipeline_model_parallel_size == 1:
            self.config.virtual_pipeline_model_parallel_size = None
        self.found["vpp"] = self.config.virtual_pipeline_model_parallel_size or 1

    def optimizer_config(self) -> None:
        """Build the configurations of optimizer and gradient buffers."""
        training = self.megatron.training
        sys.modules.update(self.megatron.engine)
        try:
            self.optimizer, _ = training.get_megatron_optimizer_config(self.args)
        finally:
            for name in self.megatron.engine:
                sys.modules.pop(name, None)
        self.buffers = training.get_megatron_ddp_config(self.args)

    def mesh(self) -> None:
        """Generate and build the process groups."""
        config = self.config
        self.megatron.groups(
            self.query["world"],
            None,
            tp=config.tensor_model_parallel_size,
            pp=config.pipeline_model_parallel_size,
            vpp=config.virtual_pipeline_model_parallel_size,
            cp=config.context_parallel_size,
            hierarchical=config.hierarchical_context_parallel_sizes,
            ep=config.expert_model_parallel_size,
            etp=config.expert_tensor_parallel_size,
        )
        state = self.megatron.state
        self.found["dp"] = state.get_data_parallel_world_size()
        self.found["edp"] = state.get_expert_data_parallel_world_size()

    def microbatches(self) -> None:
        """Ask the calculator for the number of micro-batches."""
        batches = self.megatron.batches
        batches.init_num_microbatches_calculator(
            rank=1,  # rank 0 prints
            rampup_batch_size=None,
            global_batch_size=self.args.global_batch_size,
            micro_batch_size=self.args.micro_batch_size,
            data_parallel_size=self.found["dp"],
        )
        self.found["ga"] = batches.get_num_microbatches()

    def layers(self) -> None:
        """Ask how many layers each virtual stage builds, and from which on."""
        block = load("megatron.core.transformer.transformer_block")
        layer = load("megatron.core.transformer.transformer_layer")
        prediction = load("megatron.core.transformer.multi_token_prediction")
        config, state = self.config, self.megatron.state
        vpp = config.virtual_pipeline_model_parallel_size
        stages: list[list[int]] = []
        for chunk in range(vpp or 1):
            for rank in range(config.pipeline_model_parallel_size):
                state.set_pipeline_model_parallel_rank(rank)
                where = {"vp_stage": None if vpp is None else chunk, "pp_rank": rank}
                stages.append(
                    [
                        block.get_num_layers_to_build(config, **where),
                        layer.get_transformer_layer_offset(config, **where),
                        prediction.get_mtp_num_layers_to_build(config, **where)
                        if config.mtp_num_layers
                        else 0,
                    ]
                )
        state.set_pipeline_model_parallel_rank(None)
        self.found["stages"] = stages
        built = sorted(index for n, first, _ in stages for index in range(first, first + n))
        if built != list(range(config.num_layers)):
            raise Refusal("the split does not build every layer once")

    def schedule(self) -> None:
        """Run the schedule up to the end of its own checks."""
        config, schedules = self.config, self.megatron.schedules
        torch = self.megatron.torch
        pp, vpp = config.pipeline_model_parallel_size, config.virtual_pipeline_model_parallel_size
        function = schedules.get_forward_backward_func(pp_size=pp, vp_size=vpp)
        if vpp is not None:
            first_step = "get_pp_rank_microbatches"
        else:
            first_step = "get_tensor_shapes" if pp > 1 else "check_first_val_step"
        chunks = []
        for _ in range(vpp or 1):
            chunk = torch.nn.Module()
            chunk.config = config
            chunk.model_type = load("megatron.core.enums").ModelType.encoder_or_decoder
            chunks.append(chunk)
        overlap = config.overlap_moe_expert_parallel_comm and vpp is not None
        with (
            replaced(schedules, **{first_step: past_checks}),
            replaced(config, finalize_model_grads_func=None),
            replaced(config, overlap_moe_expert_parallel_comm=overlap),
            self.megatron.on_meta(),
            contextlib.suppress(PastChecksError),
        ):
            function(
                forward_step_func=past_checks,
                data_iterator=[iter(())] * len(chunks) if vpp else iter(()),
                model=chunks if vpp else chunks[0],
                num_microbatches=self.found["ga"],
                seq_length=self.args.seq_length,
                micro_batch_size=self.args.micro_batch_size,
                forward_only=False,
            )

    def modules(self) -> None:
        """Build attention, MLP, experts, embedding and head without storage."""
        config = copy.copy(self.config)
        plain: dict[str, Any] = {
            "perform_initialization": False,
            "use_cpu_initialization": True,
            "gradient_accumulation_fusion": False,
            "fp8": None,
            "fp4": None,
            "cuda_graph_impl": "none",
            "qk_layernorm": False,
            "moe_grouped_gemm": False,
            "softmax_type": "vanilla",
        }
        if config.multi_latent_attention:
            plain |= {"rope_type": "rope", "apply_rope_fusion": False}
        for name, value in plain.items():
            if hasattr(config, name):
                setattr(config, name, value)
        torch, state = self.megatron.torch, self.megatron.state
        state.set_pipeline_model_parallel_rank(0)
        try:
            with torch.device("meta"), self.megatron.on_meta():
                self._build_layer(config)
                self._build_ends(config)
        finally:
            state.set_pipeline_model_parallel_rank(None)

    def _build_layer(self, config: Any) -> None:
        specs = load("megatron.core.models.gpt.gpt_layer_specs")
        build = load("megatron.core.transformer.spec_utils").build_module
        latent = load("megatron.core.transformer.multi_latent_attention")
        collection = load("megatron.core.process_groups_config").ProcessGroupCollection
        groups = collection.use_mpu_process_groups()
        frequency = self.config.moe_layer_freq
        kinds = {bool(entry) for entry in frequency} if isinstance(frequency, list) else {True}
        if self.config.num_moe_experts is None:
            kinds = {False}
        for moe in sorted(kinds):
            kind = copy.copy(config)
            kind.num_moe_experts = config.num_moe_experts if moe else None
            parts = specs.get_gpt_layer_local_submodules(
                num_experts=kind.num_moe_experts,
                multi_latent_attention=config.multi_latent_attention,
                normalization=config.normalization,
            )
            empty, inside = self.megatron.empty_module, parts.self_attention.submodules
            inside.core_attention = empty
            if config.multi_latent_attention:
                # Transformer Engine's layer specification keeps these two whole on every TP rank.
                inside.linear_q_down_proj = inside.linear_kv_down_proj = empty
            with replaced(latent, TELinear=empty):
                build(parts.self_attention, config=kind, layer_number=1, pg_collection=groups)
            if moe:
                self._one_expert(parts.mlp.keywords["submodules"])
            mlp = parts.mlp(config=kind, pg_collection=groups, is_mtp_layer=False)
            if moe:
                self.found["_moe"] = mlp

    @staticmethod
    def _one_expert(parts: Any) -> None:
        """Let the MoE layer build one of its experts only; they are all alike."""
        experts = parts.experts

        def build(_count: int, config: Any, **options: Any) -> Any:
            return experts(1, config, **options)

        parts.experts = build

    def _build_ends(self, config: Any) -> None:
        linear = load("megatron.core.tensor_parallel.layers")
        pad = load("megatron.training.vocab_utils").calculate_padded_vocab_size
        group = self.megatron.state.get_tensor_model_parallel_group()
        vocabulary = pad(
            self.args.vocab_size,
            self.args.make_vocab_size_divisible_by,
            config.tensor_model_parallel_size,
            logging_enabled=False,
        )
        options = {"init_method": config.init_method, "config": config, "tp_group": group}
        linear.VocabParallelEmbedding(vocabulary, config.hidden_size, **options)
        linear.ColumnParallelLinear(config.hidden_size, vocabulary, bias=False, **options)

    def runtime(self) -> None:
        """Ask what the first forward pass refuses: how the sequence is cut."""
        torch, state = self.megatron.torch, self.megatron.state
        moe = self.found.pop("_moe", None)
        if moe is not None:
            moe.train()
            moe.moe_layer_recompute = False
            moe.route = moe.shared_experts_compute = past_checks
            with contextlib.suppress(PastChecksError):
                moe.forward(torch.empty((1, 1, 1), device="meta"))
        args = self.args
        if args.context_parallel_size > 1:
            split = load("megatron.core.utils").get_batch_on_this_cp_rank
            batch = {"tokens": torch.empty((1, args.seq_length), device="meta"), "cu_seqlens": None}
            with self.megatron.on_meta():
                split(batch, False, cp_group=state.get_context_parallel_group())
        if self.config.sequence_parallel:
            mappings = load("megatron.core.tensor_parallel.mappings")
            tokens = args.seq_length // args.context_parallel_size
            shard = torch.empty((tokens, 1, 8), device="meta")
            mappings._split_along_first_dim(shard, state.get_tensor_model_parallel_group())

    def report(self) -> dict[str, dict[str, Any]]:
        """The fields that the query asks for, of each configuration."""
        owners = {
            "model": self.config,
            "optimizer": self.optimizer,
            "ddp": self.buffers,
            "args": self.args,
        }
        return {
            owner: {name: _plain(getattr(owners[owner], name, _ABSENT)) for name in names}
            for owner, names in self.query.get("report", {}).items()
        }


#: Stands for a field that a configuration has not got.
_ABSENT = "(no such field)"


def _plain(value: Any) -> Any:
    """A value of a configuration that JSON can hold; enumerations and types by their names."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "name", None) or str(value)


#: What ``check`` goes through, in order; each is a method of :class:`Case`.
STAGES: tuple[str, ...] = (
    "arguments", "transformer_config", "optimizer_config", "mesh", "microbatches", "layers",
    "schedule", "modules", "runtime",
)  # fmt: skip


def _environment(query: dict[str, Any]) -> dict[str, str]:
    """What a launcher sets: before Blackwell, TP and CP need a single hardware queue.

    Offload of activations needs an older mode of Transformer Engine's.
    """
    queues = "1" if query.get("capability", 9) < 10 else "32"
    return {"CUDA_DEVICE_MAX_CONNECTIONS": queues, "NVTE_CPU_OFFLOAD_V1": "1"}


def check(megatron: Megatron, query: dict[str, Any]) -> dict[str, Any]:
    """Go through all stages; the first refusal ends it."""
    case = Case(megatron, query)
    megatron.capability = query.get("capability", 9)
    os.environ.update(_environment(query))
    answer: dict[str, Any] = {"accept": True}
    notes: list[str] = []
    stage = ""
    try:
        for stage in STAGES:
            try:
                getattr(case, stage)()
            except (RuntimeError, NotImplementedError) as error:
                if not any(text in str(error) for text in WANTS_GPU):
                    raise
                notes.append(f"{stage}: {error}"[:200])
    except (Exception, SystemExit) as error:
        answer = {"accept": False, "stage": stage, **_described(error)}
    finally:
        megatron.leave()
    case.found.pop("_moe", None)
    return {**answer, "found": case.found, "notes": notes, "report": case.report()}


def _described(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "/megatron/" in f.filename] or [frames[-1]]
    place = inside[-1]
    return {
        "error": type(error).__name__,
        "message": " ".join(str(error).split())[:400],
        "where": f"{place.filename.split('/megatron/')[-1]}:{place.lineno}:{place.name}",
    }


def rank_groups(megatron: Megatron, query: dict[str, Any]) -> dict[str, Any]:
    """All groups of each kind, as the real generator lists them."""
    record: dict[str, list[list[int]]] = {}
    sizes: dict[str, Any] = {name: query.get(name, 1) for name in ("tp", "cp", "pp", "ep", "etp")}
    if "order" in query:
        sizes["order"] = query["order"]
    try:
        megatron.groups(query["world"], record, **sizes)
    except (Exception, SystemExit) as error:
        return {"accept": False, "stage": "mesh", **_described(error)}
    finally:
        megatron.leave()
    groups = {short: record[name] for name, short in GROUP_NAMES.items() if name in record}
    return {"accept": True, "groups": groups}


def layout(_: Megatron, query: dict[str, Any]) -> dict[str, Any]:
    """Stages of a layout string as lists of letters.

    With ``layers`` the layout is validated for a model of so many, too, and ``slots`` has for each
    stage its first decoder layer and how many of each part it builds.
    """
    module = load("megatron.core.transformer.pipeline_parallel_layer_layout")
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    try:
        stages = module.PipelineParallelLayerLayout.parse_str_to_list(query["text"])
        parsed = module.PipelineParallelLayerLayout(query["text"], query.get("pp", 1))
        if "layers" in query:
            parsed.validate_layer_layout(query["layers"], query["mtp"])
    except (Exception, SystemExit) as error:
        return {"accept": False, "stage": "layout", **_described(error)}
    answer = {
        "accept": True,
        "stages": ["".join(letters[part.name] for part in stage) for stage in stages],
        "vpp": parsed.virtual_pipeline_model_parallel_size,
    }
    return {**answer, "slots": _slots(parsed)} if "layers" in query else answer


def _slots(parsed: Any) -> list[dict[str, int]]:
    """What each stage builds, in the order of the layers, asked as a model asks it."""
    kinds = load("megatron.core.transformer.enums").LayerType
    ranks, chunks = parsed.pipeline_model_parallel_size, parsed.virtual_pipeline_model_parallel_size
    with replaced(
        load("megatron.core.parallel_state"),
        get_virtual_pipeline_model_parallel_world_size=lambda: chunks,
    ):
        return [
            {
                "first": parsed.get_layer_offset(vp_stage=chunk, pp_rank=rank),
                **{
                    kind.name: parsed.get_num_layers_to_build(kind, vp_stage=chunk, pp_rank=rank)
                    for kind in (kinds.embedding, kinds.decoder, kinds.mtp, kinds.loss)
                },
            }
            for chunk in range(chunks)
            for rank in range(ranks)
        ]


def overrides(_: Megatron, query: dict[str, Any]) -> dict[str, Any]:
    """Field and value of each override, by Hydra's grammar."""
    parser = load("hydra.core.override_parser.overrides_parser").OverridesParser.create()
    try:
        parsed = parser.parse_overrides(query["texts"])
    except (Exception, SystemExit) as error:
        return {"accept": False, "stage": "overrides", **_described(error)}
    return {"accept": True, "values": {one.key_or_group: one.value() for one in parsed}}


QUERIES: dict[str, Callable[[Megatron, dict[str, Any]], dict[str, Any]]] = {
    "check": check,
    "rank_groups": rank_groups,
    "layout": layout,
    "overrides": overrides,
}


def main() -> None:
    """Answer every line of standard input."""
    answers = sys.stdout
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        megatron = Megatron()
    logging.disable(logging.CRITICAL)
    answers.write(json.dumps({"version": megatron.version}) + "\n")
    answers.flush()
    for line in sys.stdin:
        query = json.loads(line)
        start = time.perf_counter()
        sink = io.StringIO()
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            answer = QUERIES[query["query"]](megatron, query)
        answer["ms"] = round((time.perf_counter() - start) * 1e3, 1)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
