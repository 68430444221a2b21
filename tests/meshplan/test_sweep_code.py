"""The name of the code in the key of a row: other code may give other answers."""

from __future__ import annotations

import re
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import meshplan
from meshplan.scenarios import from_mapping
from meshplan.sweeps import code
from meshplan.sweeps.grid import scenario_key
from meshplan.sweeps.work import Task, solve_task

ROOT = Path(__file__).resolve().parent.parent.parent
_SCENARIO = {
    "meshplan": 1,
    "name": "small",
    "model": "toy-dense",
    "cluster": {"preset": "h100-hgx", "nodes": 1},
    "workload": {"seq_len": 4096, "global_batch_size": 8, "precision": "bf16"},
}


def _named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the code whose packages lie in ``folder``."""

    def found(name: str) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder / name.rpartition(".")[2])]
        return spec

    monkeypatch.setattr(code, "find_spec", found)
    return code.code_name.__wrapped__()


def test_code_and_cards_have_a_part_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that changes a formula or a model card keeps the version, not the name."""
    for name in ("constraints", "scenarios", "solver", "topologies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    same = _named(tmp_path, monkeypatch)
    assert re.fullmatch(rf"{re.escape(meshplan.__version__)} \(code [0-9a-f]{{12}}\)", same)
    assert same == code.code_name(), "a copy elsewhere is the same code"

    seed = tmp_path / "scenarios" / "seed" / "dsv3-h100-128k.yaml"
    seed.write_text("changed", "utf-8")
    assert _named(tmp_path, monkeypatch) == same, "no scenario has a part in another one's answer"

    formats = tmp_path / "constraints" / "memory" / "formats.py"
    text = formats.read_bytes()
    formats.write_bytes(text.replace(b"\n", b"\r\n"))
    assert _named(tmp_path, monkeypatch) == same, "line ends of a checkout on Windows"
    formats.write_bytes(text + b"# more\n")
    other = _named(tmp_path, monkeypatch)
    assert other != same
    card = tmp_path / "scenarios" / "models" / "toy-dense.yaml"
    card.write_bytes(card.read_bytes() + b"# more\n")
    assert len({same, other, _named(tmp_path, monkeypatch)}) == 3


def test_rows_of_other_code_have_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal from before a ``git pull`` must not answer for the formulas after it."""
    scenario = from_mapping(_SCENARIO)
    before = scenario_key(scenario)
    monkeypatch.setattr("meshplan.sweeps.grid.code_name", lambda: "0.1.0 (code 000000000000)")
    assert scenario_key(scenario) != before


def test_a_worker_with_other_code_says_so() -> None:
    """Two checkouts of one version on a cluster would mix their answers in one table."""
    task = Task(_SCENARIO, "key", code="0.1.0 (code 000000000000)")
    row = solve_task(task)
    assert row["status"] == "error"
    assert row["error"] == (
        f"the worker has meshplan {code.code_name()}, the sweep 0.1.0 (code 000000000000)"
    )
