from __future__ import annotations

import pytest

from meshplan.scenarios.errors import InputError
from meshplan.solver.layout_text import Stated, read_layout


def test_text_states_degrees_and_options() -> None:
    """Tests that every kind of key is read from a text."""
    stated = read_layout(
        "tp=1, cp=32,pp=8,recompute=moe+mlp,offload=100,dispatcher=deepep,cp_comm=a2a+p2p,"
        "graphs=moe_router+attn,pipeline=Et*3|(tt|)*29m|L"
    )
    assert stated == Stated(
        degrees={"tp": 1, "cp": 32, "pp": 8},
        recompute=("mlp", "moe"),  # canonical order
        offload=100,
        dispatcher="deepep",
        cp_comm="a2a+p2p",
        graphs=("attn", "moe_router"),
        pipeline="Et*3|(tt|)*29m|L",
    )


def test_mapping_states_the_same() -> None:
    """Tests that a mapping with lists and fractions means what the text means."""
    text = read_layout("tp=2,recompute=moe+mlp,offload=50,graphs=none")
    mapping = read_layout(
        {"tp": 2, "recompute": ["moe", "mlp"], "optimizer_offload": 0.5, "cuda_graphs": ()}
    )
    assert text == mapping


def test_commas_inside_values_belong_to_them() -> None:
    """Tests that a comma ends a value only if another key follows."""
    stated = read_layout("pipeline=Et,t|t,L,recompute=[moe, mlp],tp=2,")
    assert stated.pipeline == "Et,t|t,L"
    assert stated.recompute == ("mlp", "moe")
    assert stated.degrees == {"tp": 2}


def test_full_recompute_is_no_module() -> None:
    """Tests that ``full`` is a granularity, and ``none`` no module at all."""
    full, none = read_layout("recompute=full"), read_layout("recompute=none")
    assert (full.recompute, full.recompute_full) == ((), True)
    assert (none.recompute, none.recompute_full) == ((), False)


def test_auto_opens_what_the_scenario_pins() -> None:
    """Tests that ``auto`` is remembered, for the pins must not close it again."""
    assert read_layout("recompute=auto,tp=auto").free == {"recompute", "tp"}


@pytest.mark.parametrize(
    ("layout", "message", "advice"),
    [
        ("tp=0", "layout has tp = 0, but tp must be an integer from 1 to 1048576", "write tp=1."),
        ("tp=1.5", "layout has tp = 1.5,", "write tp=1."),
        ("tp=" + "9" * 40, "tp must be an integer", "write tp=1."),
        ("tp=true", "layout has tp = true", "write tp=1."),
        ("xp=3", "layout has the unknown key 'xp' (value 3)", "you meant"),
        ("tp=1,tp=2", "layout gives tp twice", "keep one"),
        ("tp=1,cp", "layout has tp = '1,cp'", "write tp=1."),
        ("foo", "layout has the part 'foo', which is not key=value", "write"),
        (" , ", "it states nothing", "write"),
        ("a" * 10_001, "layout has 10001 characters", "leave out"),
        ("recompute=mo", "layout has recompute = mo, but", "you meant moe."),
        ("recompute=moe+full", "full stands for itself", "write recompute=full"),
        ("recompute=[]", "layout has recompute =", "write"),
        ("dispatcher=DeepEP", "must be one of alltoall, deepep, hybridep", "you meant deepep."),
        ("offload=101", "must be an integer from 0 to 100", "write offload=100."),
        ("offload=nan", "layout has offload = nan", "write offload=100."),
        ("tp=2;ep=2", "layout has tp = '2;ep=2'", "put a comma between the keys"),
        ("tp=2 ep=2", "layout has tp = '2 ep=2'", "put a comma between the keys"),
        ("offload=0.5", "offload is in percent", "write offload=50, or optimizer_offload=0.5."),
        ("activation_offload=core_attn", "unknown key", "--set options.activation_offload=["),
        ("optimizer_offload=nan", "a fraction from 0 to 1", "write optimizer_offload=1.0"),
        ("optimizer_offload=2", "a fraction from 0 to 1", "write optimizer_offload=1.0"),
    ],
)
def test_bad_texts_are_refused(layout: str, message: str, advice: str) -> None:
    """Tests that each slip is named with its value and some advice."""
    with pytest.raises(InputError) as caught:
        read_layout(layout)
    assert message in caught.value.message
    assert advice in (caught.value.advice or "")


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": True},
        {"tp": 2.0},
        {"tp": [1]},
        {"pipeline": 3},
        {"recompute": 1},
        {"recompute": [None]},
        {"recompute": {"granularity": "full"}},
        {"dispatcher": None, "offload": float("nan")},
        {3: 4},
    ],
)
def test_bad_mappings_are_refused(layout: dict[str, object]) -> None:
    """Tests that values of other types end in words as well."""
    with pytest.raises(InputError):
        read_layout(layout)


def test_offload_has_a_key_in_percent_and_one_in_fractions() -> None:
    """Tests both spellings: ``offload`` counts percent, ``optimizer_offload`` is a fraction."""
    assert read_layout("offload=25%").offload == 25
    assert read_layout("offload=true").offload == 100
    assert read_layout("optimizer_offload=1").offload == 100
    assert read_layout({"optimizer_offload": False}).offload == 0
