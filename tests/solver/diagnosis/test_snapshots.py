"""Whole reports, kept as files and read as prose when they change.

``MESHPLAN_WRITE_SNAPSHOTS=1 python -m pytest tests/solver/diagnosis/test_snapshots.py`` writes them
anew.  The plans of repairs are left out: they follow the time model, which has tests of its own.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

import meshplan

_HERE = Path(__file__).resolve().parent
_REPORTS = _HERE.parent.parent.parent / "scenarios" / "reports"
#: One for each kind of cause: the floors of memory, with no pin and with one; memory by a search;
#: a rule on one degree, on a dispatcher, and on the split of the layers.
_NAMES = (
    "two-gpus-for-full-training-of-70b",
    "four-gpus-for-full-training-of-30b",
    "gradients-and-optimizer-beyond-the-gpu",
    "expert-degree-off-the-experts",
    "deepep-over-three-nodes",
    "layers-lost-over-sixteen-stages",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_report_is_as_it_was_read(name: str) -> None:
    """Tests text and Markdown of a shipped scenario, letter for letter."""
    found = meshplan.diagnose(_REPORTS / f"{name}.yaml")
    assert all(one.verified and one.plan is not None for one in found.repairs)
    found = dataclasses.replace(
        found, repairs=tuple(dataclasses.replace(one, plan=None) for one in found.repairs)
    )
    for suffix, text in ((".txt", str(found)), (".md", found.to_markdown())):
        file = (_HERE / "snapshots" / name).with_suffix(suffix)
        if os.environ.get("MESHPLAN_WRITE_SNAPSHOTS") == "1":
            file.write_text(text, "utf-8")
        assert text == file.read_text("utf-8"), f"{file.name} changed; read it, then write it anew"
