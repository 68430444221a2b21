"""The comparison with megatron-core, as far as it runs without the package."""

from __future__ import annotations

import random

import pytest

from benchmarks.legality import LEAST_BROKEN, Tally, faults, report
from benchmarks.legality_aims import AIMS
from benchmarks.legality_compare import EXERCISED, NOT_EXERCISED, Verdicts, broken_rules, query
from benchmarks.legality_draws import Draft, draw, finish
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.rules import ALL_RULES


def test_every_rule_is_exercised_or_said_not_to_be() -> None:
    """Tests that no rule is forgotten, and that no listed one has left the catalogue."""
    ids = {one.id for one in ALL_RULES} | {one.id for one in ALL_LAYOUT_RULES}
    assert set(NOT_EXERCISED) <= ids
    assert set(EXERCISED) == (ids - set(NOT_EXERCISED)) | {"layout-grammar"}


def test_draws_depend_on_seed_and_number_alone() -> None:
    """Tests that a disagreement can be drawn again by itself."""
    late = draw(3, 17)
    assert [draw(3, index) for index in range(20)][17].layout == late.layout
    assert draw(4, 17).layout != late.layout


def test_draws_meet_the_rules() -> None:
    """Tests that 3,000 draws break every rule that the package can be asked about."""
    broken: set[str] = set()
    illegal = 0
    for index in range(3000):
        found = set(broken_rules(draw(0, index))) & set(EXERCISED)
        illegal += bool(found)
        broken |= found
    assert broken == set(EXERCISED)
    assert 1000 <= illegal <= 2000, "a third to two thirds"


@pytest.mark.parametrize("name", AIMS)
def test_aims_reach_triples(name: str) -> None:
    """Tests that an aim makes triples, and not only contradictory ones."""
    rng = random.Random(5)
    made = [finish(AIMS[name](rng), rng, (name,)) for _ in range(40)]
    assert sum(one is not None for one in made) >= 15


def test_arguments_of_a_layout() -> None:
    """Tests the command line of one layout: degrees, ends of the split, and options."""
    draft = Draft(
        "toy-moe",
        degrees={"tp": 2, "pp": 2, "vpp": 2, "ep": 2, "cp": 2},
        options={"dispatcher": "deepep", "offload": 50, "recompute": ("moe_act",)},
        precision="fp8-block",
        ga=4,
    )
    triple = finish(draft, random.Random(0), ())
    assert triple is not None
    asked = query(triple)
    line = " ".join(asked["argv"])
    assert asked["world"] == 8
    for part in (
        "--tensor-model-parallel-size 2 --sequence-parallel",
        "--global-batch-size 4",
        "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
        "--optimizer-cpu-offload --optimizer-offload-fraction 0.5",
        "--recompute-granularity selective --recompute-modules moe_act",
        "--fp8-format hybrid --fp8-recipe blockwise",
        # 6 layers and both ends make 8 on 2*2 stages
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
        "--num-virtual-stages-per-pipeline-rank 2",
    ):
        assert part in line
    assert "--fp8-param-gather" not in line, "offloaded, so that the weights stay in bf16"


def test_disagreements_are_worded_for_both_directions() -> None:
    """Tests who is said to refuse."""
    assert Verdicts(("heads-tp",), None, None).disagreement == (
        "meshplan refuses (heads-tp), megatron-core accepts"
    )
    refused = Verdicts((), "mesh", "RuntimeError").disagreement
    assert refused == "meshplan accepts, megatron-core refuses in mesh: RuntimeError"
    assert Verdicts(("heads-tp",), "mesh", "x").disagreement is None
    assert Verdicts((), None, None).disagreement is None


def test_a_run_passes_only_with_agreement_share_and_coverage() -> None:
    """Tests each reason to fail, and the table of a run that passes."""
    good = Tally(triples=12_000, illegal=5_000, version="0.19.2")
    good.broken.update({name: LEAST_BROKEN for name in EXERCISED})
    assert faults(good) == []
    assert "12000 triples of seed 9: 5000 illegal (42%), 0 disagreements" in report(good, 9)[0]
    good.broken["heads-tp"] -= 1
    assert faults(good) == ["heads-tp was broken 19 times, fewer than 20"]
    few = Tally(triples=300, illegal=99, disagreements=[(4, "both differ")])
    assert faults(few) == ["1 disagreements", "only 99 of 300 triples are illegal"]
