"""The scenario file as frozen pydantic models: what may be asked, and its defaults.

Every section refuses unknown keys.  Messages for people are made by
:mod:`meshplan.scenarios.loader`; use :func:`meshplan.scenarios.loader.load` to read a file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from meshplan.scenarios.checks import Within, complaint, refusal, whole
from meshplan.scenarios.choices import (
    ActivationOffload,
    AutoFlag,
    CrossEntropy,
    CudaGraphs,
    DecidedRecompute,
    Degree,
    Dispatcher,
    EngineVersion,
    Flag,
    FrameworkVersion,
    KebabName,
    Label,
    OptimizerOffload,
    PathText,
    PipelineLayout,
    Precision,
    Recompute,
    Tolerance,
)
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.model_ref import ANY_CARD, ModelRef
from meshplan.scenarios.pins import BatchSize, CommPin, Pin
from meshplan.scenarios.source_map import SourceMap, path_keys

#: Longest sequence that a scenario may ask for, tokens.
MAX_SEQ_LEN = 16_777_216


class Section(BaseModel):
    """A part of a scenario: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _require_one_form(schema: dict[str, Any]) -> None:
    """Tell editors what :meth:`ClusterSpec._one_form` checks."""
    sizes = ("gpus", "nodes", "domains")
    presets = [{"required": ["preset", size]} for size in sizes]
    part = [{"required": ["topology", size], "not": {"required": ["use"]}} for size in sizes[:2]]
    none = {"anyOf": [{"required": [size]} for size in sizes]}
    schema["oneOf"] = [*presets, *part, {"required": ["topology"], "not": none}]


class ClusterSpec(Section):
    """Where the run happens: a preset with a size, or a topology or cluster file."""

    model_config = ConfigDict(json_schema_extra=_require_one_form)

    preset: Label | None = Field(
        default=None, description="Name of a cluster preset, such as h100-hgx or gb200-nvl72."
    )
    gpus: Degree | None = Field(default=None, description="Number of GPUs.")
    nodes: Degree | None = Field(default=None, description="Number of whole nodes.")
    domains: Annotated[tuple[Degree, ...], Field(min_length=1)] | None = Field(
        default=None, description="GPUs to use in each NVLink domain, one number a domain."
    )
    topology: PathText | None = Field(
        default=None,
        description="Path of a topology file, or of a cluster file that meshplan import topology "
        "wrote; from the folder of this file.",
    )
    node_type: Label | None = Field(
        default=None,
        description="Type of the nodes in the topology file; a cluster file has its own.",
    )
    use: Literal["all", "best"] | None = Field(
        default=None,
        description="How many of these GPUs are used: all, or as many as give the most tokens/s; "
        "best by default with a topology file, all otherwise.",
    )

    @property
    def gpus_open(self) -> bool:
        """Whether the search chooses how many GPUs are used."""
        if self.use is not None:
            return self.use == "best"
        return self.topology is not None and self.gpus is None and self.nodes is None

    @model_validator(mode="after")
    def _one_form(self) -> ClusterSpec:
        sizes = [key for key in ("gpus", "nodes", "domains") if getattr(self, key) is not None]
        if self.topology is not None:
            self._beside_topology(sizes)
            return self
        if self.node_type is not None:
            raise complaint(
                self.node_type, "given together with topology", "use preset.", ("node_type",)
            )
        if self.preset is None:
            raise refusal("is missing", "add preset, for example h100-hgx.", ("preset",))
        if not sizes:
            raise refusal("is missing, and so are nodes and domains", "add gpus: 256.", ("gpus",))
        if len(sizes) > 1:
            value = getattr(self, sizes[1])
            wanted = "the only one of gpus, nodes and domains"
            raise complaint(value, wanted, f"remove {' or '.join(sizes)}.", (sizes[1],))
        return self

    def _beside_topology(self, sizes: list[str]) -> None:
        """Refuse what says the same as the topology file, and two numbers of GPUs."""
        extra = [key for key in ("preset", "domains") if getattr(self, key) is not None]
        if extra:
            value = getattr(self, extra[0])
            raise complaint(value, "left out next to topology", f"remove {extra[0]}.", (extra[0],))
        if len(sizes) > 1:
            raise complaint(self.nodes, "left out next to gpus", "remove nodes.", ("nodes",))
        if sizes and self.use is not None:
            wanted = f"left out next to {sizes[0]}, which says how many GPUs are used"
            raise complaint(self.use, wanted, f"remove use or {sizes[0]}.", ("use",))


class Workload(Section):
    """What is trained on: sequence length, batch and number format."""

    seq_len: Annotated[int, Within(1, MAX_SEQ_LEN)] = Field(description="Tokens in one sequence.")
    global_batch_size: BatchSize = Field(
        description="Sequences in one optimizer step, or {min, max, multiple_of}."
    )
    precision: Precision = Field(
        default="bf16", description="Number format of the large matrix products."
    )
    variable_length: Flag = Field(
        default=False, description="Whether sequences are packed with varying lengths."
    )


class LayoutPins(Section):
    """Degrees that the scenario pins: a number, a list or {min, max}; an absent one is free."""

    tp: Pin | None = Field(default=None, description="Tensor parallel degree.")
    cp: Pin | None = Field(default=None, description="Context parallel degree.")
    pp: Pin | None = Field(default=None, description="Pipeline parallel degree.")
    vpp: Pin | None = Field(default=None, description="Virtual pipeline stages on each rank.")
    dp: Pin | None = Field(default=None, description="Data parallel degree.")
    ep: Pin | None = Field(default=None, description="Expert parallel degree.")
    etp: Pin | None = Field(default=None, description="Expert tensor parallel degree.")
    edp: Pin | None = Field(default=None, description="Expert data parallel degree.")
    mbs: Pin | None = Field(default=None, description="Sequences in one micro-batch.")
    ga: Pin | None = Field(default=None, description="Micro-batches in one optimizer step.")
    cp_comm: CommPin | None = Field(
        default=None, description="How context parallelism exchanges keys and values."
    )


class Options(Section):
    """What the search may use besides the degrees."""

    recompute: Recompute = Field(
        default="auto", description="Activation recompute: free, none, full, or these modules."
    )
    optimizer_offload: OptimizerOffload = Field(
        default="auto", description="Fraction of the optimizer state kept on the host."
    )
    activation_offload: ActivationOffload = Field(
        default="none", description="Modules whose saved inputs are kept in host memory."
    )
    dispatcher: Literal["auto", "alltoall", "deepep", "hybridep"] = Field(
        default="auto", description="Token dispatcher of the MoE layers."
    )
    cuda_graphs: CudaGraphs = Field(
        default="none", description="Parts of a layer that CUDA graphs capture."
    )
    pipeline_layout: PipelineLayout = Field(
        default="auto", description="Layers of each pipeline stage, in Megatron's notation."
    )


class Limits(Section):
    """What a plan must respect."""

    memory_headroom: Annotated[float, Within(0, 0.5)] = Field(
        default=0.08, description="Fraction of GPU memory to keep free."
    )
    min_dp: Degree = Field(default=1, description="Least data parallel degree.")
    tp_within_domain: Flag = Field(
        default=True, description="Whether a TP group must stay in one NVLink domain."
    )
    ep_within_domain: AutoFlag = Field(
        default="auto",
        description="Whether an EP group must stay in one NVLink domain; auto: where it can.",
    )


class Objective(Section):
    """What makes one plan better than another."""

    maximize: Literal["throughput"] = Field(default="throughput", description="First criterion.")
    dp_tolerance: Tolerance = Field(
        default="auto",
        description="Fraction of the best throughput given up for more DP; auto: the error band of "
        "the calibration, within which plans are ties.",
    )


class Framework(Section):
    """The training framework whose rules hold."""

    name: Literal["megatron-core"] = Field(default="megatron-core", description="Framework.")
    version: FrameworkVersion = Field(
        default="0.19", description="Version, in quotes; rules that differ by version follow it."
    )
    transformer_engine: EngineVersion = Field(
        default="2.16", description="Version of Transformer Engine, in quotes; decides some memory."
    )

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers that compare: ``(0, 19)``."""
        return _numbers(self.version)

    @property
    def transformer_engine_release(self) -> tuple[int, ...]:
        """The version of Transformer Engine as numbers that compare."""
        return _numbers(self.transformer_engine)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Training(Section):
    """Choices of the training recipe that cost memory or time."""

    gradient_dtype: Literal["auto", "fp32", "bf16"] = Field(
        default="auto",
        description="Format in which gradients are accumulated and reduced; auto: bf16 for a "
        "mixture of experts, fp32 for a dense model.",
    )
    moment_dtype: Literal["auto", "fp32", "bf16"] = Field(
        default="auto",
        description="Format of the two Adam moments; auto: bf16 for a mixture of experts, fp32 "
        "for a dense model.",
    )
    precision_aware_optimizer: AutoFlag = Field(
        default="auto",
        description="Whether the optimizer keeps its state in other formats; auto: if one is set.",
    )
    store_param_remainders: AutoFlag = Field(
        default="auto",
        description="Whether a bf16 weight serves as the upper half of its fp32 master; auto: "
        "where the precision-aware optimizer does so.",
    )
    distributed_optimizer: Flag = Field(
        default=True, description="Whether data-parallel ranks share the optimizer state."
    )
    fp8_parameters: AutoFlag = Field(
        default="auto",
        description="Whether weights are kept in FP8; auto: where the precision allows.",
    )
    cross_entropy: CrossEntropy = Field(
        default="native", description="Implementation of the loss; decides the logits' memory."
    )
    attention_backend: Literal["fused", "unfused"] = Field(
        default="fused", description="Whether attention keeps its scores (unfused) or not."
    )
    sequence_parallel: Flag = Field(
        default=True, description="Whether TP ranks share the sequence outside attention and MLP."
    )
    hidden_dropout: Annotated[float, Within(0, 1)] = Field(
        default=0.0, description="Dropout after attention and MLP; above 0 it keeps masks."
    )
    gradient_accumulation_fusion: Flag = Field(
        default=True, description="Whether weight gradients are added in the matrix product."
    )
    recompute_method: Literal["uniform", "block"] = Field(
        default="uniform", description="Full recompute: every layer, or the first of each stage."
    )
    recompute_num_layers: Degree = Field(
        default=1, description="Full recompute: layers of a checkpoint (uniform) or of a stage."
    )
    load_imbalance: Annotated[float, Within(1, 1024)] = Field(
        default=1.0,
        description="Tokens of the busiest expert rank over the mean; counted up to ep.",
    )
    overlap_expert_communication: Flag = Field(
        default=False, description="Whether token dispatch overlaps with another micro-batch."
    )
    overlap_tensor_communication: Flag = Field(
        default=False, description="Whether TP communication overlaps with matrix products."
    )
    fused_grouped_mlp: Flag = Field(
        default=False, description="Whether the experts run in fused kernels (CuTe DSL, MXFP8)."
    )


class ExpectedLayout(Section):
    """Degrees that the answer must have; an absent one may be anything."""

    tp: Degree | None = None
    cp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    dp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    edp: Degree | None = None
    mbs: Degree | None = None
    ga: Degree | None = None
    gbs: Degree | None = None
    gpus: Degree | None = None

    def stated(self) -> dict[str, int]:
        """The degrees that were written down."""
        return self.model_dump(exclude_none=True)


class Expect(Section):
    """What `meshplan test` holds the answer to."""

    status: Literal["optimal", "infeasible", "feasible"] = Field(description="Kind of answer.")
    layout: ExpectedLayout = Field(default=ExpectedLayout(), description="Degrees of the plan.")
    conflict: Annotated[tuple[KebabName, ...], Field(min_length=1)] | None = Field(
        default=None, description="Rule ids of one minimal conflict, compared as a set."
    )
    recompute: DecidedRecompute | None = Field(default=None, description="Recompute of the plan.")
    dispatcher: Dispatcher | None = Field(default=None, description="Dispatcher of the plan.")

    @model_validator(mode="after")
    def _consistent(self) -> Expect:
        plan = [key for key in ("recompute", "dispatcher") if getattr(self, key) is not None]
        plan += ["layout"] if self.layout.stated() else []
        if self.status == "infeasible" and plan:
            raise complaint(
                self.status,
                f"optimal or feasible to expect {plan[0]}",
                "use conflict.",
                ("status",),
            )
        if self.status != "infeasible" and self.conflict is not None:
            raise complaint(
                self.status, "infeasible to expect a conflict", "use infeasible.", ("status",)
            )
        return self


class Scenario(Section):
    """One question to meshplan: model, cluster, workload, what is pinned, what is expected."""

    meshplan: Annotated[Literal[1], BeforeValidator(lambda value: whole(value, 1, 1))] = Field(
        description="Version of this file format."
    )
    name: KebabName = Field(description="Kebab-case name, the same as the file's.")
    description: Annotated[str, Field(max_length=10_000)] = Field(
        default="", description="One sentence saying what this case is for."
    )
    model: ModelRef = Field(description="Card name, {card: name, field: ...}, or a card's fields.")
    cluster: ClusterSpec = Field(description="Where the run happens.")
    workload: Workload = Field(description="What is trained on.")
    layout: LayoutPins = Field(default=LayoutPins(), description="Pinned degrees.")
    options: Options = Field(default=Options(), description="What the search may use.")
    limits: Limits = Field(default=Limits(), description="What a plan must respect.")
    objective: Objective = Field(default=Objective(), description="What makes a plan better.")
    framework: Framework = Field(default=Framework(), description="Whose rules hold.")
    training: Training = Field(default=Training(), description="Training recipe.")
    calibration: PathText = Field(
        default="default",
        description="Efficiencies of the step-time model: default, or the path of a file that "
        "meshplan calibrate wrote, from the folder of this file.",
    )
    expect: Expect | None = Field(default=None, description="What the answer must be.")

    _source: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source(self) -> SourceMap:
        """Where the scenario was written; not part of dumps, and ignored when comparing."""
        return self._source

    def from_source(self, source: SourceMap) -> Scenario:
        """The same scenario, said to be written at ``source``."""
        copy = self.model_copy()
        copy._source = source
        return copy

    def line_of(self, path: str) -> tuple[str, int] | None:
        """File and line where ``path`` (``cluster.gpus``, ``layout.cp[1]``) was written.

        None if the file leaves it open, an override wrote it, or there is no file.
        """
        line = self._source.lines.get(path_keys(path))
        if line is None or self._source.file is None:
            return None
        return self._source.file, line

    def error_at(self, path: str, message: str, advice: str | None = None) -> InputError:
        """An error about the value at ``path``, with its file and line, or its override."""
        return self._source.error(path_keys(path), message, advice)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario file, for editors."""
    from meshplan.scenarios.cards import card_names
    from meshplan.scenarios.model_card import ModelCard
    from meshplan.topologies import presets

    schema = Scenario.model_json_schema()
    card = ModelCard.model_json_schema()
    # Examples, which editors complete: an enum would refuse the names that a later version has.
    names = list(card_names())
    definitions = {**schema.pop("$defs"), **card.pop("$defs", {}), "ModelCard": card}
    for form in schema["properties"]["model"]["anyOf"]:
        if form.get("required") == ["card"]:
            form["properties"] = {**card["properties"], **form["properties"]}
            form["additionalProperties"] = False
            form["properties"]["card"] = {**form["properties"]["card"], "examples": names}
        elif form == ANY_CARD:
            form.clear()
            form["$ref"] = "#/$defs/ModelCard"
        elif form.get("type") == "string":
            form["examples"] = names
    preset = definitions["ClusterSpec"]["properties"]["preset"]["anyOf"][0]
    preset["examples"] = [one.name for one in presets()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "meshplan scenario",
        "$defs": definitions,
    }
