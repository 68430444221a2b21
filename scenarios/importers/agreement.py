"""Where launch arguments and a scenario differ: other figures of the model, another workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshplan.scenarios.importers.megatron_args import MegatronArguments
from meshplan.scenarios.importers.megatron_flags import CARD_FIELDS, Value, spelt
from meshplan.scenarios.importers.megatron_part import ScenarioPart
from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.schema import Scenario

#: Fields of a card that mean something only in a model with experts, or with latent attention.
#: Printed arguments have values for them in every model, as these have defaults.
_OF_EXPERTS = frozenset(("topk", "moe_ffn", "shared_ffn"))
_OF_LATENTS = frozenset(
    ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
)


@dataclass(frozen=True)
class Difference:
    """A figure of the model that arguments and a model card have otherwise.

    Attributes
    ----------
    name, value, line
        The argument, by its name in the dump; its value and where it stands.
    key, known
        The field of the card and its value; 0 where the model has no such thing.
    """

    name: str
    value: Value
    line: int
    key: str
    known: object


def model_differences(arguments: MegatronArguments, model: ModelCard) -> tuple[Difference, ...]:
    """Figures of the model that the arguments have otherwise than its card."""
    return tuple(
        Difference(name, setting.value, setting.line, key, known)
        for name, key in CARD_FIELDS.items()
        if (setting := arguments.setting(name)) is not None
        and setting.value != (known := getattr(model, key) or 0)
        and _says_something(key, arguments, model)
    )


def _says_something(key: str, arguments: MegatronArguments, model: ModelCard) -> bool:
    """Whether an argument describes the model, or is a default that its kind does not use."""
    if key == "ffn":
        return bool(model.ffn)  # of a model whose layers all have experts it means nothing
    if key == "kv_groups":
        grouped = arguments.get("group_query_attention") is not False
        return grouped and model.attention != "mla"
    if key in _OF_EXPERTS:
        return arguments.form != "dump" or arguments.get("num_experts") is not None
    if key in _OF_LATENTS:
        return arguments.form != "dump" or arguments.get("multi_latent_attention") is True
    return True


def disagreements(
    arguments: MegatronArguments, part: ScenarioPart, scenario: Scenario, model: ModelCard
) -> tuple[str, ...]:
    """A sentence for each figure that the arguments give and the scenario has otherwise.

    The scenario's figure is the one that is judged by; degrees, options and the global batch come
    from the arguments.
    """
    found = [
        f"line {one.line}: {spelt(one.name)} is {one.value}, but the scenario's model "
        f"{model.name} has {one.key} = {one.known}; judged by the scenario"
        for one in model_differences(arguments, model)
    ]
    for key in ("seq_len", "precision"):
        stated, known = part.workload.get(key), getattr(scenario.workload, key)
        if stated is not None and stated != known:
            found.append(
                f"the arguments have {key} {stated}, the scenario {known}; judged by the scenario's"
            )
    size = part.workload.get("global_batch_size")
    if size is not None and not scenario.workload.global_batch_size.allowed(size):
        written = scenario.workload.global_batch_size.written()
        found.append(
            f"the arguments have global batch {size}, the scenario {written}; {size} taken"
        )
    for key in sorted(scenario.training.model_fields_set & set(part.training)):
        stated, known = part.training[key], getattr(scenario.training, key)
        if stated != known:
            found.append(
                f"the arguments have {key} {_said(stated)}, the scenario {_said(known)}; judged by "
                "the scenario's"
            )
    return tuple(found)


def with_recipe(scenario: Scenario, part: ScenarioPart) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario with the recipe of the arguments, and what changed.

    That is the training recipe where the scenario has none (its own defaults are those of
    published recipes, not of Megatron-LM's command line), and which activations are offloaded: a
    part of the layout as people see it, though not of meshplan's.
    """
    written = scenario.training.model_fields_set
    taken = {key: value for key, value in part.training.items() if key not in written}
    changes: dict[str, Any] = {}
    if taken:
        changes["training"] = scenario.training.model_copy(update=taken)
    modules = part.options.get("activation_offload")
    modules = tuple(modules) if isinstance(modules, list) else modules
    if modules is not None and modules != scenario.options.activation_offload:
        taken = {**taken, "activation_offload": modules}
        changes["options"] = scenario.options.model_copy(update={"activation_offload": modules})
    if not taken:
        return scenario, ()
    said = ", ".join(f"{key} {_said(value)}" for key, value in taken.items())
    return scenario.model_copy(update=changes), (f"from the arguments: {said}",)


def _said(value: object) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value).lower()


__all__ = ["Difference", "disagreements", "model_differences", "with_recipe"]
