"""The catalogue as a whole: ids, scopes, lookup, totality, and rules that must not exist."""

from __future__ import annotations

import re
from itertools import product

import pytest

from meshplan.constraints.decisions import DECISIONS, DERIVED
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.problem import Limits, Problem, Training
from meshplan.constraints.rule import Rule
from meshplan.constraints.rules import ALL_RULES, UnknownRule, rule
from tests.constraints.factories import card, problem

ODD_VALUES = (1, 2, 3, 7, 8, 31, 64, 1000, 999_983)
FLAGS = (0, 1)
OPTIONS: dict[str, tuple[int | str, ...]] = {
    "dispatcher": ("alltoall", "deepep", "hybridep"),
    "cp_comm": ("p2p", "a2a", "a2a+p2p", "all_gather"),
    "offload": (0, 50, 100),
}
PROBLEMS = (
    problem(),
    problem("toy-dense", gpus=4),
    problem("deepseek-v3", gpus=256, seq_len=131072, precision="fp8-block"),
    problem("gpt-oss-120b", "gb200-nvl72", domains=(72, 68, 56), precision="mxfp8"),
    problem("qwen3-next-80b-a3b", "gb300-nvl72", gpus=144, version=(0, 15)),
    problem(
        card("deepseek-v3", mtp_layers=2),
        variable_length=True,
        limits=Limits(min_dp=2, ep_within_domain=True),
        training=Training(precision_aware=False, overlap_expert_communication=True),
    ),
)


def _values(name: str) -> tuple[int | str, ...]:
    if name in OPTIONS:
        return OPTIONS[name]
    return FLAGS if name.startswith(("rc_", "cg_")) else ODD_VALUES


def test_ids_are_kebab_case_and_unique() -> None:
    """Tests that no two rules, on decisions or on slots, share an id."""
    ids = [one.id for one in ALL_RULES] + [one.id for one in ALL_LAYOUT_RULES]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", one)] == []


@pytest.mark.parametrize("one", ALL_RULES, ids=lambda one: one.id)
def test_rules_say_who_they_are(one: Rule) -> None:
    """Tests that scopes name decisions, and that a person finds reason, source and remedy."""
    assert one.scope
    assert set(one.scope) <= {*DECISIONS, *DERIVED}
    assert len(set(one.scope)) == len(one.scope)
    assert one.formula
    assert one.why.endswith(".")
    assert one.source
    assert one.fields


@pytest.mark.parametrize("one", ALL_RULES, ids=lambda one: one.id)
@pytest.mark.parametrize("where", PROBLEMS, ids=lambda where: where.model.name)
def test_rules_are_total(one: Rule, where: Problem) -> None:
    """Tests that no values make a rule raise, and that a violation is one worded sentence."""
    domains = [_values(name)[: 9 if len(one.scope) < 4 else 4] for name in one.scope]
    for values in product(*domains):
        held = one.holds(where, *values)
        assert isinstance(held, bool)
        if not held:
            text = one.explain(where, *values)
            assert text and "\n" not in text and not text.endswith(".")


@pytest.mark.parametrize("one", ALL_RULES, ids=lambda one: one.id)
@pytest.mark.parametrize("where", PROBLEMS, ids=lambda where: where.model.name)
def test_rules_that_do_not_apply_hold(one: Rule, where: Problem) -> None:
    """Tests that a rule which the solver may leave out could not have refused anything."""
    if one.applies(where):
        return
    # Divisions of a part that the model lacks, or in another precision, are not looked at; in a
    # dense model dense-expert-grid and dispatcher-needs-moe leave nothing to the last two.
    skipped = ("experts-ep", "etp-within-domain", "deepep-needs-etp-ep")
    if one.family in ("divisibility", "precision") or one.id in skipped:
        return
    for values in product(*(_values(name)[:4] for name in one.scope)):
        assert one.holds(where, *values)


def test_lookup_suggests_the_nearest_ids() -> None:
    """Tests that a misspelt id names the rule that was meant."""
    assert rule("heads-tp").id == "heads-tp"
    with pytest.raises(KeyError) as caught:
        rule("world-expert-divisble")
    assert isinstance(caught.value, UnknownRule)
    assert caught.value.nearest[0] == "world-expert-divisible"
    assert "did you mean world-expert-divisible" in str(caught.value)


def _broken(where: Problem, **values: int | str) -> set[str]:
    """Ids of the rules that refuse these decisions; rules on other decisions are left out."""
    return {
        one.id
        for one in ALL_RULES
        if one.applies(where)
        and set(one.scope) <= set(values)
        and not one.holds(where, *(values[name] for name in one.scope))
    }


def test_ep_may_exceed_dp() -> None:
    """Tests that ep = 32 with dp = 2 is legal: experts fold over TP, CP and DP (Qwen3-235B)."""
    where = problem("qwen3-235b-a22b", "gb200-nvl72", gpus=128, seq_len=131072)
    assert _broken(where, tp=4, cp=4, pp=4, dp=2, etp=1, ep=32, edp=1) == set()


def test_ep_need_not_divide_dp_times_cp() -> None:
    """Tests that ep = 4 with dp*cp = 6 is legal as long as etp*ep*pp divides the GPUs."""
    where = problem(card("toy-moe", heads=12), gpus=24, seq_len=4096)
    assert _broken(where, tp=4, cp=2, pp=1, dp=3, etp=1, ep=4, edp=6) == set()


def test_product_of_all_degrees_is_not_demanded() -> None:
    """Tests that 256 GPUs do for tp1 cp32 pp8 ep32, whose product of degrees is 8192."""
    where = problem("deepseek-v3", gpus=256, seq_len=131072)
    assert _broken(where, tp=1, cp=32, pp=8, dp=1, etp=1, ep=32, edp=1) == set()


@pytest.mark.parametrize("gpus", [24, 72, 96, 1152])
def test_dp_need_not_be_a_power_of_two(gpus: int) -> None:
    """Tests that dp takes what is left: 3, 9, 12 or 144 times 8."""
    where = problem(gpus=gpus)
    dp = gpus // 8
    assert (
        _broken(where, tp=4, cp=2, pp=1, dp=dp, etp=1, ep=8, edp=dp, mbs=1, ga=4, gbs=4 * dp)
        == set()
    )


def test_ga_need_not_be_a_multiple_of_pp_times_vpp() -> None:
    """Tests that vpp = 4 with pp = 8 accepts ga = 8 and ga = 24: multiples of pp are enough."""
    where = problem(gpus=256)
    for ga in (8, 24):
        assert _broken(where, pp=8, vpp=4, ga=ga) == set()


def test_plain_pipeline_accepts_any_ga() -> None:
    """Tests that without vpp ga may be below pp and no multiple of it."""
    where = problem(gpus=256)
    for ga in (1, 3, 9, 17):
        assert _broken(where, pp=8, vpp=1, ga=ga) == set()


@pytest.mark.parametrize("vpp", [3, 7, 12])
def test_vpp_need_not_be_a_power_of_two(vpp: int) -> None:
    """Tests that odd numbers of virtual stages are legal."""
    assert _broken(problem(), pp=4, vpp=vpp, ga=8) == set()
