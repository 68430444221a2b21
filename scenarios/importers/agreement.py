"""Where launch arguments and a scenario differ: other figures of the model, another workload."""

from __future__ import annotations

from typing import Any

from meshplan.scenarios.importers.megatron_args import MegatronArguments
from meshplan.scenarios.importers.megatron_flags import CARD_FIELDS, spelt
from meshplan.scenarios.importers.megatron_part import ScenarioPart
from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.schema import Scenario


def disagreements(
    arguments: MegatronArguments, part: ScenarioPart, scenario: Scenario, model: ModelCard
) -> tuple[str, ...]:
    """A sentence for each figure that the arguments give and the scenario has otherwise.

    The scenario's figure is the one that is judged by; degrees, options and the global batch come
    from the arguments.
    """
    found = []
    for name, key in CARD_FIELDS.items():
        setting = arguments.setting(name)
        known = getattr(model, key) or 0
        # Megatron-LM's own FFN width means nothing to a model whose layers all have experts.
        if setting is None or setting.value == known or (key == "ffn" and not known):
            continue
        if key == "kv_groups" and model.attention == "mla":
            continue
        found.append(
            f"line {setting.line}: {spelt(name)} is {setting.value}, but the scenario's model "
            f"{model.name} has {key} = {known}; judged by the scenario"
        )
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


__all__ = ["disagreements", "with_recipe"]
