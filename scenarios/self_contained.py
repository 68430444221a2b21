"""A scenario as plain data that means the same wherever it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshplan.scenarios.schema import Scenario

#: Fields that may hold a path, which starts from the scenario's folder.
_PATHS = (("model", "huggingface"), ("cluster", "topology"), ("calibration",))


def self_contained(scenario: Scenario) -> dict[str, Any]:
    """What the scenario says, as data for :func:`~meshplan.scenarios.from_mapping`.

    Without ``expect``; files that it names are named by their whole path.
    """
    data = scenario.model_dump(mode="json", exclude_unset=True, exclude={"expect"})
    for *outer, name in _PATHS:
        holder: Any = data
        for key in outer:
            holder = holder.get(key)
        if not isinstance(holder, dict) or holder.get(name) in (None, "default"):
            continue
        holder[name] = str((scenario.source.folder / Path(holder[name]).expanduser()).resolve())
    return data


__all__ = ["self_contained"]
