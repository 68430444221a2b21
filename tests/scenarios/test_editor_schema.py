"""The JSON Schema as an editor uses it: it accepts what meshplan accepts, and marks slips."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from meshplan.scenarios import json_schema
from meshplan.scenarios.cards import card_names
from meshplan.scenarios.yaml_reader import read_yaml, read_yaml_file
from meshplan.suite.files import scenario_files

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = jsonschema.Draft202012Validator(json_schema())
FILES = scenario_files([str(ROOT / "scenarios")])

GOOD = """\
meshplan: 1
name: good
model: deepseek-v3
cluster: {preset: h100-hgx, gpus: 256}
workload: {seq_len: 4096, global_batch_size: 256}
"""


def _marked(data: Any) -> list[str]:
    """Paths of what an editor would underline."""
    return [".".join(str(part) for part in one.path) for one in SCHEMA.iter_errors(data)]


def test_schema_is_one() -> None:
    """Tests the schema against the schema of schemas."""
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenarios_are_accepted(file: Path) -> None:
    """Tests that an editor marks nothing in the scenarios that the project ships."""
    assert _marked(read_yaml_file(file).value) == []


def test_names_are_completed() -> None:
    """An editor offers what is in ``examples``, and underlines no name that is not."""
    schema = json_schema()
    forms = schema["properties"]["model"]["anyOf"]
    text = next(form for form in forms if form.get("type") == "string")
    changed = next(form for form in forms if form.get("required") == ["card"])
    preset = schema["$defs"]["ClusterSpec"]["properties"]["preset"]["anyOf"][0]
    assert "deepseek-v3" in text["examples"] and "h100-hgx" in preset["examples"]
    assert changed["properties"]["card"]["examples"] == text["examples"] == list(card_names())
    assert _marked(read_yaml(GOOD.replace("h100-hgx", "x100").replace("v3", "v9")).value) == []


def test_further_keys_of_the_docs_are_accepted() -> None:
    """Tests pins of all forms, options, limits and expectations, as the docs show them."""
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    more = re.findall(r"^```yaml\n(layout: .+?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert len(more) == 1
    assert _marked(read_yaml(GOOD + more[0]).value) == []


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ("workloads: {}\n", ""),
        ("layout: {tp: four}\n", "layout.tp"),
        ("layout: {tpp: 4}\n", "layout"),
        ("options: {dispatcher: deep}\n", "options.dispatcher"),
        ("limits: {memory_headroom: 3}\n", "limits.memory_headroom"),
        ("expect: {status: solved}\n", "expect"),
        ("expect: {layout: {tp: 1}}\n", "expect"),
    ],
)
def test_slips_are_marked(extra: str, path: str) -> None:
    """Tests misspelt keys, wrong kinds, unknown words, ranges and missing keys."""
    marked = _marked(read_yaml(GOOD + extra).value)
    assert any(one == path or one.startswith(f"{path}.") for one in marked), marked


def _description(key: dict[str, Any]) -> Any:
    """What an editor shows for a key; where it is that of the section, it stands there alone."""
    section = json_schema()["$defs"].get(key.get("$ref", "").rpartition("/")[2], {})
    text: str | None = key.get("description") or section.get("description")
    return text


def test_completion_has_words_to_show() -> None:
    """Tests that every key of a section says in a sentence what it is."""
    schema = json_schema()
    names = ("ClusterSpec", "Workload", "LayoutPins", "Options", "Limits", "Training", "Expect")
    sections = [schema, *(schema["$defs"][name] for name in names)]
    silent = [
        key
        for section in sections
        for key, one in section["properties"].items()
        if not _description(one)
    ]
    assert silent == []
