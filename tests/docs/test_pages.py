"""What README and docs have to hold: no key, command or page is missing, no link is broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from tests.docs.blocks import ROOT, blocks

DOCS = ROOT / "docs"


def _command(name: str) -> str:
    """Text of the one block of the README that is marked so."""
    found = [one.text for one in blocks(ROOT / "README.md") if one.about == name]
    assert len(found) == 1, f"{len(found)} blocks are marked {name!r}"
    return found[0]


@pytest.mark.parametrize("name", ["solve", "test"])
def test_commands_are_one_line_each(name: str) -> None:
    """Tests that ``.ci/run`` finds the two commands, which it runs as they stand there."""
    command = _command(name)
    assert command.startswith("python3 -m venv .venv && "), "it works in a new checkout"
    assert "\n" not in command, "a person copies one line"


def test_solve_command_names_a_scenario() -> None:
    """Tests that the scenario file of the first command is in the repository."""
    assert (ROOT / _command("solve").split()[-1]).is_file()


def test_links_lead_somewhere() -> None:
    """Tests that every relative link of README, CONTRIBUTING and docs names a file that exists."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_readme_is_short() -> None:
    """Tests that the README stays near one screen: what is longer belongs in docs."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110


# -- docs/ ------------------------------------------------------------------------------------


def _keys() -> Iterator[str]:
    """Every key of a scenario file but those of model cards, which are documented by the cards."""
    from meshplan.scenarios import json_schema

    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    cards = (schema["$defs"]["ModelCard"], schema["$defs"]["Published"])
    for section in sections:
        if section not in cards:
            yield from section["properties"]


def test_every_key_of_a_scenario_is_documented() -> None:
    """Tests that a key that the schema has stands, in code marks, in scenario-format.md."""
    page = (DOCS / "scenario-format.md").read_text("utf-8")
    code = " ".join(re.findall(r"`([^`\n]+)`", page))
    words = set(re.findall(r"[a-z_0-9]+", code))
    missing = sorted({key for key in _keys() if key not in words})
    assert not missing


def _defaults() -> list[tuple[str, Any]]:
    from meshplan.scenarios import json_schema

    schema = json_schema()
    names = ("Workload", "Options", "Limits", "Objective", "Framework", "Training")
    properties = [schema["$defs"][name]["properties"] for name in names]
    return [
        (key, one["default"])
        for section in properties
        for key, one in section.items()
        if "default" in one
    ]


@pytest.mark.parametrize(("key", "default"), _defaults())
def test_defaults_are_documented_as_they_are(key: str, default: Any) -> None:
    """Tests that the table row of a key shows the default that the schema has."""
    page = (DOCS / "scenario-format.md").read_text("utf-8")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    rows = re.findall(rf"^\| `{key}` \| `\"?([^`\"]+)\"?` \|", page, re.MULTILINE)
    assert shown in rows, f"the row of {key} says {rows}"


def test_reference_pages_are_what_the_code_says() -> None:
    """Tests that ``docs/reference/`` was written again after the last change of what it shows."""
    run = subprocess.run(
        [sys.executable, DOCS / "reference" / "generate.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_page_is_on_the_site() -> None:
    """Tests that the site's navigation, and the list of pages, name every page of docs."""
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = (DOCS / "README.md").read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages.remove("README.md")
    assert [page for page in pages if f" {page}\n" not in site or f"]({page})" not in listed] == []


def test_every_advisory_is_explained() -> None:
    """Tests that concepts.md has a row for each advisory, and for no other id."""
    from meshplan.constraints.advisories import ALL_ADVISORIES

    page = (DOCS / "concepts.md").read_text("utf-8")
    rows = re.findall(r"\| `([a-z0-9-]+)` \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted(one.id for one in ALL_ADVISORIES)


def test_every_command_is_documented() -> None:
    """Tests that cli.md names each command and each of its options, and no others."""
    from meshplan.cli.app import application

    page = (DOCS / "cli.md").read_text("utf-8")
    known = {"--help"}
    commands: dict[str, click.Command] = {}
    for name, command in application.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        commands |= {f"{name} {one}".strip(): made for one, made in inner.items()}
    for name, command in commands.items():
        assert f"`meshplan {name}" in page
        for parameter in command.params:
            known |= {option for option in parameter.opts if option.startswith("--")}
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", page)) == known


def test_every_key_of_the_json_is_documented() -> None:
    """Tests that cli.md names the keys of all results, down to those of a stage."""
    import meshplan
    from meshplan.scenarios import from_mapping

    scenario = from_mapping(
        {
            "meshplan": 1,
            "name": "toy",
            "model": "toy-moe",
            "cluster": {"preset": "h100-hgx", "gpus": 8},
            "workload": {"seq_len": 4096, "global_batch_size": 16},
        }
    )
    page = (DOCS / "cli.md").read_text("utf-8")
    words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    for result in (meshplan.solve(scenario), meshplan.check(scenario, "tp=1")):
        data = result.to_json()
        parts = [data["layout"], data["memory"], data["memory"]["stages"][0], data["time"]]
        parts += [data["pipeline"], data["recompute"], data.get("proof", {})]
        missing = [key for part in (data, *parts) for key in part if key not in words]
        assert not missing
