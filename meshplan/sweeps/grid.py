"""The grid: every combination of the values of the axes, each a checked scenario with a key."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshplan.scenarios import (
    InputError,
    Scenario,
    from_mapping,
    input_files,
    loads,
    self_contained,
)
from meshplan.scenarios.files import read_file
from meshplan.sweeps.axes import Axis
from meshplan.sweeps.code import code_name

#: What a scenario is called or is held to decides no answer.
_NO_PART_OF_THE_KEY = ("name", "description", "expect")


@dataclass(frozen=True)
class Point:
    """One scenario of a sweep.

    Attributes
    ----------
    index
        Its place in the grid: the last axis changes fastest.
    values
        What the swept fields are, in the order of the axes.
    data
        The scenario as plain data.
    key
        Names the scenario, the files that it names, their contents, and the code of meshplan.
    """

    index: int
    values: tuple[Any, ...]
    data: Mapping[str, Any]
    key: str


@dataclass(frozen=True)
class Grid:
    """All scenarios of a sweep, in their order.

    Attributes
    ----------
    name
        Of the scenario that is swept.
    inputs
        The files that it is made of, by what names them.
    """

    name: str
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    inputs: Mapping[str, Path]


def read_grid(
    source: Scenario | str | Path, overrides: Sequence[str], axes: tuple[Axis, ...]
) -> Grid:
    """Read a scenario file once, or take a scenario, and check it with each combination.

    Raises
    ------
    InputError
        If the file cannot be read or a combination is refused: before anything is solved.
    """
    from meshplan.constraints.resolve import resolve

    change, contents = _changeable(source), _Contents()
    points: list[Point] = []
    inputs: dict[str, Path] = {}
    by_axis = [list(zip(axis.values, axis.overrides(), strict=True)) for axis in axes]
    for index, chosen in enumerate(itertools.product(*by_axis)):
        changes = [*overrides, *(override for _, override in chosen)]
        scenario = change(changes)
        resolve(scenario)  # a cluster or model that cannot be is refused here
        key = scenario_key(scenario, contents)
        values = tuple(value for value, _ in chosen)
        points.append(Point(index, values, self_contained(scenario), key))
        files = input_files(scenario)
        inputs |= {f"{name} ({path})" if name in inputs and inputs[name] != path else name: path
                   for name, path in files.items()}  # fmt: skip
    _refuse_twins(points, axes)
    return Grid(scenario.name, axes, tuple(points), inputs)


def _changeable(source: Scenario | str | Path) -> Callable[[Sequence[str]], Scenario]:
    """What makes of changes such as ``workload.seq_len=8192`` the changed scenario."""
    if isinstance(source, Scenario):
        data = self_contained(source)
        return lambda changes: from_mapping(data, changes)
    text = read_file(source)
    return lambda changes: loads(text, str(source), changes)


def _refuse_twins(points: Sequence[Point], axes: Sequence[Axis]) -> None:
    """Refuse two points that are one scenario: ``expect.status=...`` changes no answer."""
    seen: dict[str, Point] = {}
    for point in points:
        twin = seen.setdefault(point.key, point)
        if twin is not point:
            said = " and ".join(
                ", ".join(
                    f"{axis.field}={axis.texts[axis.values.index(value)]}"
                    for axis, value in zip(axes, one.values, strict=True)
                )
                for one in (twin, point)
            )
            raise InputError(
                f"{said} are the same scenario", advice="sweep fields that decide the answer."
            )


class _Contents:
    """Digests of files, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def digest(self, path: Path) -> str:
        if path not in self._known:
            self._known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._known[path]


def scenario_key(scenario: Scenario, contents: _Contents | None = None) -> str:
    """A name that stands for one answer: 32 hexadecimal digits.

    It depends on the scenario, on the contents of model, topology and calibration files, and on
    the code of meshplan; not on where files lie, nor on the name of the scenario.
    """
    contents = contents or _Contents()
    data = scenario.model_dump(mode="json", exclude_unset=True)
    files = {
        name: contents.digest(path)
        for name, path in input_files(scenario).items()
        if name != "the scenario"
    }
    kept = {name: part for name, part in data.items() if name not in _NO_PART_OF_THE_KEY}
    for section, field in (("model", "huggingface"), ("cluster", "topology")):
        holder = kept.get(section)
        if isinstance(holder, dict) and holder.get(field) is not None:
            holder[field] = "by its content"
    kept["calibration"] = "by its content"
    text = json.dumps([code_name(), kept, files], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


__all__ = ["Grid", "Point", "read_grid", "scenario_key"]
