from __future__ import annotations

import json
from typing import Any

import pytest

import meshplan
from meshplan.constraints.problem import QUANTA_PER_GIB
from meshplan.scenarios import InputError
from meshplan.solver.diagnosis.diagnose import diagnose
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.diagnosis.stated import with_stated
from meshplan.solver.report.data import dumps
from meshplan.solver.report.diagnosis_schema import DiagnosisForm
from tests.solver.oracle import tried
from tests.solver.small import small, toy_scenario, with_capacity

#: 16 GPUs in two NVLink domains, and a model whose heads tp = 16 divides.
TWO_DOMAINS: dict[str, Any] = {
    "cluster": {"preset": "h100-hgx", "gpus": 16},
    "model": {"card": "toy-moe", "heads": 16, "kv_groups": 16},
}
LEAN: dict[str, Any] = {"recompute": "none", "optimizer_offload": 0}


def test_rules_and_memory_are_told_apart() -> None:
    """Tests tp = 16 on 8 GPUs a domain: one conflict of rules, and it is the cause."""
    found = diagnose(small(**TWO_DOMAINS, layout={"tp": 16}))
    assert found.status == "infeasible"
    assert [one.rules for one in found.conflicts] == [("tp-within-domain",)]
    assert found.cause == found.conflicts[0].text
    assert found.cut_short == ()


def test_the_cause_of_too_little_memory_has_its_numbers() -> None:
    """Tests a problem with 90 % of what its leanest layout needs."""
    asked = small(model="toy-dense", layout={"tp": 1, "cp": 1, "mbs": 4}, options=LEAN)
    least = min(one.peak for one in tried(asked))
    found = diagnose(with_capacity(asked, int(least * 0.9)))
    assert found.status == "infeasible"
    assert MEMORY in found.conflicts[0].rules
    usable = found.problem.capacity / QUANTA_PER_GIB
    assert found.facts["usable_gib"] == pytest.approx(usable, abs=1e-3)
    assert f"{usable:.1f} GiB usable" in found.cause
    # The example has the pins of the conflict only, so it needs no more than the pinned question.
    example = found.facts["example_peak_gib"]
    assert usable < example <= least / QUANTA_PER_GIB + 1e-3
    assert f"needs {example:.1f} GiB on pipeline rank" in found.cause


def test_arithmetic_says_so() -> None:
    """Tests that a model far too large is refused by a floor, without any search."""
    found = diagnose(small(model="llama-3.1-405b"))
    assert [one.rule for one in found.findings] == [MEMORY]
    assert "Arithmetic alone shows it" in found.cause
    assert [one.rules for one in found.conflicts] == [(MEMORY,)]
    assert found.complete
    assert "arithmetic alone" in str(found)


def test_several_conflicts_are_all_given() -> None:
    """Tests two clashes that have nothing to do with each other: both are found, and no other."""
    found = diagnose(
        small(
            **TWO_DOMAINS,
            layout={"tp": 16, "ep": 3, "etp": 1},
            options={"dispatcher": "alltoall"},
        )
    )
    members = [{*one.rules, *one.pins} for one in found.conflicts]
    assert {"tp-within-domain", "layout.tp = 16"} in members
    assert {"experts-ep", "layout.ep = 3"} in members
    assert found.complete


def test_a_plan_says_what_it_is_close_to() -> None:
    """Tests a problem whose memory is what its leanest layout needs: tight, by the numbers."""
    asked = small(model="toy-dense", layout={"tp": 8, "mbs": 1}, options=LEAN)
    least = min(one.peak for one in tried(asked))
    found = diagnose(with_capacity(asked, least + 1))
    assert found.status == "possible" and found.plan is not None
    assert found.conflicts == ()
    assert any(text.startswith("Memory is tight") for text in found.near_misses)
    assert any(text.startswith("dp is 1") for text in found.near_misses)
    assert "with little room" in str(found)


def test_a_plan_with_room_is_close_to_nothing() -> None:
    """Tests that a toy model on 8 GPUs has no near misses."""
    found = diagnose(small(layout={"dp": 8}))
    assert found.status == "possible"
    assert found.near_misses == ()


@pytest.mark.parametrize("seconds", [1e-9])
def test_a_limit_leaves_what_is_proved(seconds: float) -> None:
    """Tests that arithmetic still answers where there is no time for anything else."""
    found = diagnose(small(model="llama-3.1-405b"), time_limit_s=seconds)
    assert found.status == "infeasible"
    assert "conflict" in found.cut_short
    assert "Cut short" in str(found)
    unknown = diagnose(small(), time_limit_s=seconds)
    assert unknown.status == "unknown"
    assert unknown.cut_short == ("verdict",)


def test_an_interrupt_leaves_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests Ctrl-C while further conflicts are looked for: the first is kept."""
    from meshplan.solver.diagnosis.conflict import Conflicts

    def interrupted(self: Conflicts, most: int) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Conflicts, "every", interrupted)
    found = diagnose(small(layout={"tp": 8, "cp": 2}))
    assert len(found.conflicts) == 1
    assert found.cut_short == ("conflicts",)
    assert not found.complete


def _apart_from_seconds(text: str) -> Any:
    data = json.loads(text)
    data["proof"]["wall_s"] = 0
    return data


@pytest.mark.parametrize("layout", [{"tp": 8, "cp": 2}, {"dp": 8}])
def test_json_has_its_form_and_is_stable(layout: dict[str, int]) -> None:
    """Tests the JSON against its schema, twice the same but for the seconds."""
    first, second = (diagnose(small(layout=layout)) for _ in range(2))
    data = first.to_json()
    DiagnosisForm.model_validate(data)
    assert _apart_from_seconds(dumps(data)) == _apart_from_seconds(dumps(second.to_json()))
    assert str(first) == str(second)
    assert first.to_markdown() == second.to_markdown()


def test_infeasible_has_its_diagnosis() -> None:
    """Tests that the answer of ``solve`` gives the diagnosis of the same problem, once."""
    result = meshplan.solve(toy_scenario(8, layout={"tp": 8, "cp": 2}))
    assert isinstance(result, meshplan.Infeasible)
    assert result.diagnosis is result.diagnosis
    assert result.diagnosis.conflicts[0] == result.conflicts[0]


def test_a_stated_layout_becomes_pins() -> None:
    """Tests every key of a layout text, and that what is open stays as the scenario has it."""
    scenario = toy_scenario(8, layout={"cp": 2, "pp": [1, 2]}, options={"recompute": "none"})
    problem, fields = with_stated(
        scenario,
        "tp=2,cp=auto,mbs=1,gbs=16,recompute=full,offload=100,dispatcher=alltoall,graphs=none,"
        "cp_comm=p2p,pipeline=even",
    )
    pinned = {pin.decision: pin.values for pin in problem.pins}
    assert pinned["tp"] == (2,) and pinned["mbs"] == (1,) and pinned["pp"] == (1, 2)
    assert "cp" not in pinned
    assert pinned["rc_full"] == (1,) and pinned["offload"] == (100,)
    assert pinned["dispatcher"] == ("alltoall",) and pinned["cp_comm"] == ("p2p",)
    assert problem.candidates["gbs"] == (16,)
    assert problem.even_split
    assert fields[0] == "layout.tp" and "workload.global_batch_size" in fields


def test_a_layout_of_other_gpus_is_refused() -> None:
    """Tests that the number of GPUs is the cluster's."""
    with pytest.raises(InputError, match="gpus = 16"):
        with_stated(toy_scenario(8), "tp=2,gpus=16")


def test_a_whole_layout_can_be_diagnosed() -> None:
    """Tests that the layout of a plan, pinned, is possible."""
    scenario = toy_scenario(8)
    plan = meshplan.solve(scenario)
    assert isinstance(plan, meshplan.Plan)
    assert meshplan.diagnose(scenario, plan.layout).status == "possible"
