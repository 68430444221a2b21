from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("constraints", "scenarios", "solver", "topologies")
SETUPTOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "setuptools"
]


def _folder_of(package: str) -> str:
    """Folder of a package, relative to the root: ``meshplan.solver.time`` is ``solver/time``."""
    head, _, rest = package.partition(".")
    inside = rest.replace(".", "/")
    return inside if rest.partition(".")[0] in FOLDERS else f"{head}/{inside}".rstrip("/")


def test_packages_are_those_of_the_tree() -> None:
    """Tests that every package is listed, as setuptools leaves an unlisted one out silently."""
    inits = (path for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py"))
    found = {".".join(("meshplan", *path.parent.relative_to(ROOT).parts)) for path in inits}
    assert (
        set(SETUPTOOLS["packages"])
        == {"meshplan", "meshplan.cli", "meshplan.suite", "meshplan.sweeps"} | found
    )
    assert len(SETUPTOOLS["packages"]) == len(set(SETUPTOOLS["packages"]))


def test_modules_lie_in_packages() -> None:
    """Tests that no folder holds modules without an ``__init__.py``, as the wheel lacks those."""
    homes = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert [str(home) for home in sorted(homes) if not (home / "__init__.py").exists()] == []


def test_each_package_is_built_from_its_real_folder() -> None:
    """Tests that the wheel is built past the links, which a zip or Windows may not have."""
    assert SETUPTOOLS["package-dir"] == {name: _folder_of(name) for name in SETUPTOOLS["packages"]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_links_lead_to_the_real_folders(folder: str) -> None:
    """Tests that type checkers and runs without an install find each folder under meshplan."""
    assert (ROOT / "meshplan" / folder).resolve() == ROOT / folder


def test_every_yaml_file_is_package_data() -> None:
    """Tests that no card, preset or scenario is missing from the wheel."""
    shipped = {
        path
        for package, globs in SETUPTOOLS["package-data"].items()
        for pattern in globs
        for path in (ROOT / _folder_of(package)).glob(pattern)
    }
    files = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.yaml")}
    assert files, "the project ships model cards and presets as YAML"
    assert sorted(str(path) for path in files - shipped) == []
    assert ROOT / "meshplan" / "py.typed" in shipped


def test_no_glob_of_package_data_is_idle() -> None:
    """Tests that each pattern matches a file: an idle one is a folder that was renamed."""
    idle = [
        f"{package}: {pattern}"
        for package, globs in SETUPTOOLS["package-data"].items()
        for pattern in globs
        if not any((ROOT / _folder_of(package)).glob(pattern))
    ]
    assert idle == []
