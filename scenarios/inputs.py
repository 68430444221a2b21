"""Which files a scenario is made of, so that no result is ever written over one of them."""

from __future__ import annotations

from pathlib import Path

from meshplan.scenarios.calibration import DEFAULT_FILE
from meshplan.scenarios.cards import card_file
from meshplan.scenarios.schema import Scenario
from meshplan.scenarios.source_map import SourceMap


def input_files(scenario: Scenario) -> dict[str, Path]:
    """The file that a scenario was read from and those that it names, by what names them."""
    source = scenario.source
    files = {} if source.file is None else {"the scenario": Path(source.file)}
    if scenario.model.huggingface is not None:
        files["model.huggingface"] = _path(source, scenario.model.huggingface)
    elif scenario.model.card is not None and (card := card_file(scenario.model.card)):
        files["the model card"] = card
    if scenario.cluster.topology is not None:
        files["cluster.topology"] = _path(source, scenario.cluster.topology)
    named = scenario.calibration
    files["calibration"] = DEFAULT_FILE if named == "default" else _path(source, named)
    return files


def _path(source: SourceMap, name: str) -> Path:
    """The path that ``name`` means; one that can be none is left to whoever reads it."""
    try:
        return source.folder / Path(name).expanduser()
    except RuntimeError:  # "~nobody"
        return source.folder / name


__all__ = ["input_files"]
