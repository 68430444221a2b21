from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from meshplan.cli.app import application
from meshplan.constraints.advisories import ALL_ADVISORIES
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.rules import ALL_RULES
from meshplan.constraints.split_rules import SPLIT_RULES
from meshplan.scenarios.cards import card_names
from meshplan.topologies import presets


def _output(*arguments: str) -> str:
    run = CliRunner().invoke(application, list(arguments))
    assert run.exit_code == 0, run.output
    return run.output


def test_rules_lists_all_with_their_formulas() -> None:
    """Tests that no rule and no advisory is missing, and that the total is right."""
    text = _output("rules")
    names = {line.split()[0] for line in text.splitlines() if line.startswith("  ")}
    rules = {one.id for one in (*ALL_RULES, *SPLIT_RULES)} | {one.id for one in ALL_LAYOUT_RULES}
    rules.add("memory-capacity")
    assert rules | {one.id for one in ALL_ADVISORIES} <= names
    assert "heads % tp == 0" in text
    assert f"{len(rules)} rules, {len(ALL_ADVISORIES)} advisories." in text


@pytest.mark.parametrize("rule_id", 
    [
        "heads-tp", "layout-mtp-count", "dp-floor", "memory-capacity",
        "layout-stage-count", "layers-pp-default", "slots-hold-layers",
    ],
)  # fmt: skip
def test_explain_says_why_and_where_from(rule_id: str) -> None:
    """Tests one of each kind: rule, rule on slots, advisory, memory, and the split rules."""
    text = _output("explain", rule_id)
    assert rule_id in text.splitlines()[0]
    assert text.count(f" {rule_id}") == 1, "one entry, even where two catalogues know the id"
    assert "  why " in text and "  source " in text


def test_explain_shows_both_of_one_name() -> None:
    """Tests an id that a rule and an advisory share."""
    text = _output("explain", "graphs-need-static-shapes")
    assert "rule graphs-need-static-shapes (cuda-graph)" in text
    assert "advisory graphs-need-static-shapes" in text


@pytest.mark.parametrize(
    ("name", "advice"),
    [("heds-tp", "Maybe you mean heads-tp"), ("zzz", "Maybe see `meshplan rules`.")],
)
def test_explain_suggests_names(name: str, advice: str) -> None:
    """Tests that an unknown id is bad input, with the nearest ids."""
    run = CliRunner().invoke(application, ["explain", name])
    assert run.exit_code == 2
    assert f"there is no rule or advisory '{name}'" in run.stderr
    assert advice in run.stderr


def test_models_lists_every_card() -> None:
    """Tests names and sizes: DeepSeek-V3 has 671.0 B parameters and 256 experts, 8 a token."""
    text = _output("models")
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert set(card_names()) <= set(rows)
    assert "671.0 B" in rows["deepseek-v3"] and "256, top 8" in rows["deepseek-v3"]


def test_clusters_lists_every_preset() -> None:
    """Tests names and figures: an H100 has 989 bf16 TFLOP/s, an NVL72 domain 72 GPUs."""
    text = _output("clusters")
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert {preset.name for preset in presets()} <= set(rows)
    assert " 989 " in rows["h100-hgx"]
    assert " 72 " in rows["gb200-nvl72"]


def test_lists_fit_a_narrow_terminal() -> None:
    """Tests that lists keep within 100 columns where there is no terminal."""
    for command in ("rules", "models", "clusters"):
        assert max(map(len, _output(command).splitlines())) <= 100


def test_schema_is_json() -> None:
    """Tests that editors get a schema with the sections of a scenario."""
    data = json.loads(_output("schema"))
    assert {"model", "cluster", "workload", "layout", "options"} <= set(data["properties"])


def test_help_names_every_command() -> None:
    """Tests that a person finds all commands, the most useful first."""
    text = _output("--help")
    listed = text[text.index("Commands:") :].split("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in listed] == [
        "solve", "check", "diagnose", "limits", "why", "diff", "memory", "place", "flops", "test",
        "sweep", "export", "calibrate", "import", "rules", "explain", "models", "clusters",
        "schema",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("check", ("  gpus=256               the number of GPUs: must be the cluster's",
                   "  offload=100            percent of the optimizer state on the host")),
        ("calibrate", ("  name, weight           optional",)),
    ],
)  # fmt: skip
def test_tables_in_help_stay_tables(command: str, lines: tuple[str, ...]) -> None:
    """Tests that keys and columns have a line each: click fills paragraphs that it may fill."""
    said = CliRunner().invoke(application, [command, "--help"]).output
    assert "\\b" not in said
    assert all(f"  {line}\n" in said for line in lines)
