"""The sections of a scenario that launch arguments give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ScenarioPart:
    """Sections of a scenario file, and what was decided on the way.

    Attributes
    ----------
    layout, options, workload, training
        The sections, as plain data; what is open is absent.
    notes
        Defaults that were taken, and what a scenario cannot hold, in sentences.
    """

    layout: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections that say anything, as in a scenario file."""
        named = {
            "workload": self.workload,
            "layout": self.layout,
            "options": self.options,
            "training": self.training,
        }
        return {name: dict(section) for name, section in named.items() if section}

    def stated_layout(self) -> dict[str, Any]:
        """Degrees and options in one mapping, as ``meshplan.check`` takes it.

        Offloaded activations are no decision of a layout, but an option of the scenario.
        """
        options = {k: v for k, v in self.options.items() if k != "activation_offload"}
        return {**self.layout, **options, **self._batch()}

    def _batch(self) -> dict[str, Any]:
        size = self.workload.get("global_batch_size")
        return {} if size is None else {"gbs": size}


__all__ = ["ScenarioPart"]
