"""Plans that must not be exported are refused, with the field that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshplan.scenarios import InputError, from_mapping
from meshplan.solver.check import check
from meshplan.solver.export.plan_file import read_plan
from meshplan.solver.report.data import dumps
from tests.solver.export.plans import written

Edit = Callable[[dict[str, Any]], object]


def _refusal(path: Path, edit: Edit) -> InputError:
    data = json.loads(path.read_text("utf-8"))
    edit(data)
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert caught.value.file == str(path) and caught.value.advice
    return caught.value


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda data: data["layout"].update(dp=16), "the plan breaks world-dense-divisible: "),
        (lambda data: data["layout"].update(gpus=128), "layout.gpus is 128, but the rest"),
        # Quotes tell a text from a number: "is 4, but the rest makes it 4" helps nobody.
        (lambda data: data["layout"].update(tp="1"), "layout.tp is '1', but the rest"),
        (lambda data: data["layout"].update(mbs=2), "gbs"),
        (lambda data: data["pipeline"].update(layout="E|(ttt|)*30tmL"), "t"),
        (lambda data: data["pipeline"]["slots"][3].update(layers=7), "pipeline.slots is "),
        (lambda data: data.update(dispatcher="alltoall"), "memory.peak_gib is "),
        (lambda data: data.update(activation_offload=["moe_act"]), "activation_offload is "),
        (lambda data: data["recompute"].update(granularity=None), "recompute.granularity is None"),
        (lambda data: data["time"].update(step_s=1.0), "time.step_s is 1.0, but this version"),
        (lambda data: data["memory"].update(peak_gib=1.0), "memory.peak_gib is 1.0, but this"),
        (lambda data: data["scenario"]["workload"].update(seq_len=8192), "this version gets"),
        (lambda data: data["layout"].update(ep=3), "the plan breaks "),
        (lambda data: data.update(meshplan_result=2), "meshplan_result = 1"),
        (lambda data: data.pop("layout"), "has no layout"),
        (lambda data: data.update(layout=None), "has no layout"),
        (lambda data: data.pop("scenario"), "no layout and scenario"),
        (lambda data: data.pop("recompute"), "damaged"),
    ],
)
def test_stale_and_edited_plans_are_refused(tmp_path: Path, edit: Edit, said: str) -> None:
    """Tests single edits of a good plan; each is found, and nothing is exported from it."""
    assert said in _refusal(written(tmp_path, "published"), edit).message


def test_the_good_plan_is_taken(tmp_path: Path) -> None:
    """Tests that the plan of the edits above is fine as it stands, whatever its proof took."""
    path = written(tmp_path, "published")
    data = json.loads(path.read_text("utf-8"))
    data |= {"name": "other", "advisories": []}
    path.write_text(json.dumps(data), "utf-8")
    assert read_plan(path).layout.ep == 32


def test_plans_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Tests a layout that ``check`` found overfull: it would be exported to fail."""
    path = written(tmp_path, "full recompute")
    scenario = from_mapping(json.loads(path.read_text("utf-8"))["scenario"])
    report = check(scenario, "tp=1,cp=1,pp=1,mbs=8,recompute=none,offload=0")
    assert report.status == "overfull"
    path.write_text(dumps(report.to_json()), "utf-8")
    with pytest.raises(InputError, match=r"the plan does not fit: .* of .* GiB"):
        read_plan(path)
