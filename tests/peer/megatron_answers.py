"""Answers of megatron-core, and of Hydra, to questions without a start-up: groups, layouts, texts.

Runs beside :mod:`tests.peer.megatron_peer`; meshplan is not imported.
"""

from __future__ import annotations

import traceback
from typing import Any

from tests.peer.megatron_machine import Megatron, load, replaced

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


def described(error: BaseException) -> dict[str, str]:
    """A refusal as data: its kind, its text, and where in Megatron it stands."""
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
        return {"accept": False, "stage": "mesh", **described(error)}
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
        return {"accept": False, "stage": "layout", **described(error)}
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
        return {"accept": False, "stage": "overrides", **described(error)}
    return {"accept": True, "values": {one.key_or_group: one.value() for one in parsed}}
