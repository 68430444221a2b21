"""The example notebook, run from its first cell to its last."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.meshplan.results import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def notebook() -> Any:
    """The notebook as it is stored."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    return nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)


def test_nothing_stale_is_stored(notebook: Any) -> None:
    """Tests that no output is kept: it would be that of another version one day."""
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.slow
def test_notebook_runs(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that each cell runs, and that each result shows itself as HTML and as text."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    shutil.copy(EXAMPLES / "my-run.yaml", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert len(shown) == 4, "plan, judgement, comparison, diagnosis"
    answers = ("Optimal", "legal", "than the optimum", "Nothing fits")
    for data, words in zip(shown, answers, strict=True):
        assert words in data["text/html"] and "meshplan-result" in data["text/html"]
        assert words in data["text/plain"] and data["text/plain"].startswith("╭")
    assert (tmp_path / "plan.html").read_text("utf-8").startswith("<!DOCTYPE html>")
