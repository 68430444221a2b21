"""Helpers of the tests of Megatron arguments."""

from __future__ import annotations

import pytest

from meshplan.scenarios import InputError
from meshplan.scenarios.importers import ScenarioPart, read_arguments


def part(text: str, layers: int | None = None) -> ScenarioPart:
    """What a text means in a scenario."""
    return read_arguments(text, "launch.sh").to_scenario_part(layers)


def refusal(text: str) -> InputError:
    """The error of reading or translating a text."""
    with pytest.raises(InputError) as caught:
        part(text)
    return caught.value
