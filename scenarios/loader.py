"""Read scenarios: a file, a text or a mapping in, a checked Scenario or one InputError out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from meshplan.scenarios.checks import shown
from meshplan.scenarios.complaints import input_error
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.schema import Scenario
from meshplan.scenarios.source_map import SourceMap, dotted
from meshplan.scenarios.yaml_reader import (
    MAX_DEPTH,
    KeyPath,
    YamlDocument,
    read_yaml,
    read_yaml_file,
    shorten,
)

if TYPE_CHECKING:
    from meshplan.scenarios.calibration import Calibration
    from meshplan.scenarios.model_card import ModelCard
    from meshplan.topologies import Cluster


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read the scenario file at ``path``.

    Parameters
    ----------
    path
        A YAML file.
    overrides
        Changes such as ``workload.seq_len=65536``, applied in order; the value is YAML, and an
        empty one or ``null`` takes the key away.

    Raises
    ------
    InputError
        If the file cannot be read, or anything in it or in the overrides is not allowed.
    """
    return _checked(read_yaml_file(path), str(path), overrides)


def loads(text: str, name: str = "<string>", overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario from YAML text; ``name`` stands for the file in errors.

    Raises
    ------
    InputError
        If anything in the text or the overrides is not allowed.
    """
    return _checked(read_yaml(text, name), name, overrides)


def from_mapping(data: Mapping[str, Any], overrides: Sequence[str] = ()) -> Scenario:
    """Check a scenario given as plain Python data; ``data`` stays as it is.

    Raises
    ------
    InputError
        If anything in the data or the overrides is not allowed.
    """
    return _checked(YamlDocument(data, {}), None, overrides)


def _checked(document: YamlDocument, file: str | None, overrides: Sequence[str]) -> Scenario:
    source = SourceMap(file, dict(document.lines))
    if not isinstance(document.value, Mapping):
        raise source.error(
            (),
            f"the scenario is {shown(document.value)}, but must be a mapping",
            "start it with the line 'meshplan: 1'.",
        )
    data = _plain(document.value, source, ())
    for override in overrides:
        _override(data, override, source)
    try:
        scenario = Scenario.model_validate(_without_empty(data))
    except ValidationError as error:
        raise input_error(error, Scenario, source) from None
    return scenario.from_source(source)


def _plain(value: Any, source: SourceMap, path: KeyPath) -> Any:
    """A copy of ``value`` made of dictionaries and lists, so that overrides can change it."""
    if len(path) > MAX_DEPTH:
        raise source.error(path[:3], f"{dotted(path[:3])} has more than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise source.error(
                    path, f"{dotted(path)} has the key {shown(key)}, which is not a string"
                )
        return {key: _plain(part, source, (*path, key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, source, (*path, index)) for index, part in enumerate(value)]
    return value


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` without keys that have no value: an empty section is like an absent one.

    Only in the model an empty value can mean something (a part that it lacks), so it stays.
    """
    return {
        key: _without_empty(part) if isinstance(part, dict) and key != "model" else part
        for key, part in data.items()
        if part is not None
    }


def _override(data: dict[str, Any], override: str, source: SourceMap) -> None:
    """Put the value of ``override`` into ``data`` and note in ``source`` who wrote it."""
    label = f"override {shorten(override)}"
    key, equals, text = override.partition("=")
    keys = tuple(part.strip() for part in key.split("."))
    if not equals or not all(keys):
        raise InputError(
            f"{label} is not of the form key=value",
            advice="write workload.seq_len=65536.",
        )
    try:
        value = read_yaml(text).value if text.strip() else None
    except InputError as error:
        raise InputError(f"{label}: {error.message}", advice=error.advice) from None
    if isinstance(data.get("model"), str) and keys[0] == "model" and len(keys) > 1:
        data["model"] = {"card": data["model"]}
    section = data
    for depth, part in enumerate(keys[:-1], start=1):
        if section.get(part) is None:
            section[part] = {}
        below = section[part]
        if not isinstance(below, dict):
            raise InputError(
                f"{label}: {dotted(keys[:depth])} is {shown(below)}, which has no keys",
                advice=f"set {dotted(keys[:depth])} as a whole.",
            )
        section = below
    section[keys[-1]] = value
    for path in [path for path in source.lines if path[: len(keys)] == keys]:
        del source.lines[path]
    for path in [path for path in source.overrides if path[: len(keys)] == keys]:
        del source.overrides[path]
    source.overrides[keys] = override


def resolve_model(scenario: Scenario) -> ModelCard:
    """Look up, change or build the model card that the scenario names.

    A changed card loses the published totals and the sources of the figures that changed: they
    are no longer about this model.

    Raises
    ------
    InputError
        If there is no such card, a figure is not allowed, or a Hugging Face file cannot be read
        or has parts that a card cannot hold.
    """
    from meshplan.scenarios.cards import load_card
    from meshplan.scenarios.model_card import ModelCard

    reference, source = scenario.model, scenario.source
    if reference.huggingface is not None:
        return _huggingface_model(reference.huggingface, source)
    figures = dict(reference.fields)
    if reference.card is not None:
        written: KeyPath = ("model", "card") if reference.fields else ("model",)
        try:
            card = load_card(reference.card)
        except InputError as error:
            raise source.error(
                written, f"{dotted(written)}: {error.message}", error.advice
            ) from None
        if not figures:
            return card
        kept = {key: text for key, text in card.sources.items() if key not in figures}
        base = card.model_dump(exclude={"published", "sources"}, exclude_unset=True)
        figures = {**base, "sources": kept, **figures}
    try:
        return ModelCard.model_validate(figures)
    except ValidationError as error:
        raise input_error(error, ModelCard, source, ("model",)) from None


def _huggingface_model(name: str, source: SourceMap) -> ModelCard:
    """The card of a ``config.json``; refuses one that a card holds only in part."""
    from meshplan.scenarios.importers.hf import import_model

    path: KeyPath = ("model", "huggingface")
    _existing_file(name, path, source)
    try:
        imported = import_model(source.folder / Path(name).expanduser())
    except InputError as error:
        where = f" (line {error.line})" if error.line is not None else ""
        raise source.error(
            path, f"model.huggingface is {shorten(name)}{where}: {error.message}", error.advice
        ) from None
    if imported.approximations:
        raise source.error(
            path,
            f"model.huggingface is {shorten(name)}, which a model card holds only in part: "
            f"{'; '.join(imported.approximations)}",
            "take the card that `meshplan import model` prints, if that is near enough.",
        )
    return imported.card


def resolve_calibration(scenario: Scenario) -> Calibration:
    """The calibration that the scenario names: the one that ships with meshplan, or a file's.

    Raises
    ------
    InputError
        If there is no such file, or it is no calibration.
    """
    from meshplan.scenarios.calibration import default_calibration, read_calibration

    name, source = scenario.calibration, scenario.source
    if name == "default":
        return default_calibration()
    path: KeyPath = ("calibration",)
    _existing_file(name, path, source)
    try:
        return read_calibration(source.folder / Path(name).expanduser())
    except InputError as error:
        where = f" (line {error.line})" if error.line is not None else ""
        raise source.error(
            path, f"calibration is {shorten(name)}{where}: {error.message}", error.advice
        ) from None


def resolve_cluster(scenario: Scenario) -> Cluster:
    """Build the cluster that the scenario names.

    Raises
    ------
    InputError
        If the preset is unknown, the size does not fit it, or a topology file cannot be read or
        makes no cluster.
    """
    from meshplan.topologies import ClusterError, UnknownName, build_cluster

    wanted, source = scenario.cluster, scenario.source
    if wanted.topology is not None:
        return _topology_cluster(wanted.topology, wanted.node_type, source)
    size = next(key for key in ("gpus", "nodes", "domains") if getattr(wanted, key) is not None)
    try:
        return build_cluster(
            wanted.preset or "", gpus=wanted.gpus, nodes=wanted.nodes, domains=wanted.domains
        )
    except UnknownName as error:
        raise source.error(
            ("cluster", "preset"), f"cluster.preset: {error.message}", error.advice
        ) from None
    except ClusterError as error:
        raise source.error(
            ("cluster", size), f"cluster.{size}: {error.message}", error.advice
        ) from None


def _topology_cluster(name: str, node_type: str | None, source: SourceMap) -> Cluster:
    """The cluster of a topology file, or of a cluster file that was made from some."""
    from meshplan.scenarios.topology_files import read_topology_files

    path: KeyPath = ("cluster", "topology")
    _existing_file(name, path, source)
    try:
        read = read_topology_files([source.folder / Path(name).expanduser()], node_type)
    except InputError as error:
        where = f" (line {error.line})" if error.line is not None else ""
        raise source.error(
            path, f"cluster.topology is {shorten(name)}{where}: {error.message}", error.advice
        ) from None
    if read.imported is None:
        raise source.error(
            path,
            f"cluster.topology is {shorten(name)}, which names no nodes of a cluster",
            "make a cluster file of it and others with meshplan import topology.",
        )
    return read.imported.cluster


def _existing_file(name: str, path: KeyPath, source: SourceMap) -> None:
    """Refuse a file name that leads to no file; relative ones start at the scenario's folder."""
    try:
        full = source.folder / Path(name).expanduser()
        exists, is_file = full.exists(), full.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, or "~nobody"
        exists, is_file = False, False
    if not is_file:
        what = "that is a folder or device" if exists else "there is no such file"
        raise source.error(
            path,
            f"{dotted(path)} is {shorten(name, 200)}, but {what}",
            f"check the path; it begins in the folder {shorten(str(source.folder), 200)}.",
        )
