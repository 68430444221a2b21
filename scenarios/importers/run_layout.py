"""The layout of a run that was logged, as text; and whether it is a run of the scenario at all."""

from __future__ import annotations

from collections.abc import Mapping

from meshplan.scenarios.importers.agreement import model_differences
from meshplan.scenarios.importers.megatron_args import MegatronArguments
from meshplan.scenarios.importers.megatron_sections import ScenarioPart
from meshplan.scenarios.model_card import ModelCard
from meshplan.scenarios.schema import Scenario


def layout_words(stated: Mapping[str, object]) -> str:
    """``tp=2,ep=8,recompute=moe+mlp`` from what :meth:`ScenarioPart.stated_layout` gives."""
    return ",".join(f"{key}={_word(value)}" for key, value in stated.items())


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "+".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def refuse_other_run(
    arguments: MegatronArguments, part: ScenarioPart, scenario: Scenario, model: ModelCard
) -> None:
    """Refuse arguments of another model, sequence length, precision or number of GPUs.

    Raises
    ------
    InputError
        If they differ: a time that was measured there says nothing here.
    """
    from meshplan.scenarios.loader import resolve_cluster

    workload = scenario.workload
    pairs = (
        ("seq_length", "seq_len", part.workload.get("seq_len"), workload.seq_len),
        ("fp8", "precision", part.workload.get("precision"), workload.precision),
        ("world_size", "GPUs", arguments.get("world_size"), resolve_cluster(scenario).gpus),
    )
    for name, words, ran, asked in pairs:
        if ran is not None and ran != asked:
            raise arguments.error(
                name,
                f"the run had {words} {ran}, but the scenario has {asked}",
                "give the scenario of this run.",
            )
    differences = model_differences(arguments, model)
    if differences:
        ran = ", ".join(f"{one.name} {one.value} (line {one.line})" for one in differences)
        has = ", ".join(f"{one.key} {one.known}" for one in differences)
        card = ", ".join(f"{one.key}: {one.value}" for one in differences)
        raise arguments.error(
            differences[0].name,
            f"the run had another model: {ran}; the scenario's {model.name} has {has}",
            f"give the scenario of this run. A changed model is  model: {{card: {model.name}, "
            f"{card}}}",
        )


__all__ = ["layout_words", "refuse_other_run"]
