"""Tests of the scenario's types: defaults, pins, written forms and the JSON Schema."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from meshplan.constraints import decisions
from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.scenarios.choices import Dispatcher, GraphScope, RecomputeModule
from meshplan.scenarios.pins import CP_COMM_CHOICES, BatchSize, CommPin, Pin
from meshplan.scenarios.schema import (
    Expect,
    ExpectedLayout,
    Framework,
    LayoutPins,
    Limits,
    Options,
    Scenario,
    Training,
    json_schema,
)


def small(**changes: Any) -> dict[str, Any]:
    """A least scenario, with some sections replaced."""
    scenario: dict[str, Any] = {
        "meshplan": 1,
        "name": "small",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 16},
    }
    return {**scenario, **changes}


def test_defaults() -> None:
    """Tests that an absent section means what the design says."""
    scenario = Scenario.model_validate(small())
    assert scenario.workload.precision == "bf16"
    assert scenario.workload.variable_length is False
    assert scenario.layout == LayoutPins()
    assert scenario.options.model_dump() == {
        "recompute": "auto",
        "optimizer_offload": "auto",
        "activation_offload": "none",
        "dispatcher": "auto",
        "cuda_graphs": "none",
        "pipeline_layout": "auto",
    }
    assert scenario.limits.model_dump() == {
        "memory_headroom": 0.08,
        "min_dp": 1,
        "tp_within_domain": True,
        "ep_within_domain": "auto",
    }
    assert scenario.objective.model_dump() == {"maximize": "throughput", "dp_tolerance": "auto"}
    assert scenario.framework.release == (0, 19)
    assert scenario.framework.transformer_engine_release == (2, 16)
    assert scenario.training.model_dump() == {
        "gradient_dtype": "auto",
        "moment_dtype": "auto",
        "precision_aware_optimizer": "auto",
        "store_param_remainders": "auto",
        "distributed_optimizer": True,
        "fp8_parameters": "auto",
        "cross_entropy": "native",
        "attention_backend": "fused",
        "sequence_parallel": True,
        "hidden_dropout": 0.0,
        "gradient_accumulation_fusion": True,
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
        "load_imbalance": 1.0,
        "overlap_expert_communication": False,
        "overlap_tensor_communication": False,
        "fused_grouped_mlp": False,
    }
    assert scenario.expect is None


def test_names_agree_with_the_decisions() -> None:
    """Tests that the scenario names the same choices as the decisions that rules read."""
    assert set(get_args(RecomputeModule)) == set(decisions.RECOMPUTE_MODULES)
    assert set(get_args(GraphScope)) == set(decisions.GRAPH_SCOPES)
    assert set(get_args(Dispatcher)) == set(decisions.DISPATCHERS)
    assert set(CP_COMM_CHOICES) == set(decisions.CP_COMM_TYPES)
    assert set(ExpectedLayout.model_fields) == {*decisions.DEGREES, "gpus"}
    # gbs follows from workload.global_batch_size, so it is no pin.
    assert set(LayoutPins.model_fields) == {*decisions.DEGREES, "cp_comm"} - {"gbs"}


@pytest.mark.parametrize(
    ("written", "values", "low", "high", "text"),
    [
        (16, (16,), 16, 16, "16"),
        ([32, 16, 16], (16, 32), 16, 32, "[32, 16, 16]"),
        ({"min": 2, "max": 8}, None, 2, 8, "{min: 2, max: 8}"),
        ({"min": 2}, None, 2, MAX_DEGREE, "{min: 2}"),
    ],
)
def test_pins(written: Any, values: Any, low: int, high: int, text: str) -> None:
    """Tests that the three forms of a pin mean their values and keep the user's text."""
    pin = Pin.parse(written)
    assert (pin.values, pin.minimum, pin.maximum, pin.text) == (values, low, high, text)
    assert pin.allowed(low)
    assert pin.allowed(high)
    assert not pin.allowed(low - 1)
    assert not pin.allowed(high + 1)


def test_pin_list_has_gaps() -> None:
    """Tests that a list allows its values only, and a range everything between."""
    assert not Pin.parse([2, 8]).allowed(4)
    assert Pin.parse({"min": 2, "max": 8}).allowed(3)


pins = st.one_of(
    st.integers(1, MAX_DEGREE),
    st.lists(st.integers(1, MAX_DEGREE), min_size=1, max_size=5),
    st.tuples(st.integers(1, 99), st.integers(100, 999)).map(
        lambda bounds: {"min": bounds[0], "max": bounds[1]}
    ),
)


@given(pins)
def test_pins_survive_writing(written: Any) -> None:
    """Tests that a dumped pin is read as the same pin."""
    pin = Pin.parse(written)
    assert Pin.parse(pin.written()) == pin


def test_exchange_pins() -> None:
    """Tests that exchanges are a name or a list of names, in one order."""
    assert CommPin.parse("a2a").values == ("a2a",)
    assert CommPin.parse(["all_gather", "p2p"]).values == ("p2p", "all_gather")
    assert CommPin.parse(["all_gather", "p2p"]).text == "[all_gather, p2p]"
    assert not CommPin.parse("a2a").allowed("p2p")


def test_batch_sizes() -> None:
    """Tests that a batch is one number, or the multiples within a range."""
    assert BatchSize.parse(256) == BatchSize(256, 256)
    sizes = BatchSize.parse({"min": 100, "max": 512, "multiple_of": 32})
    assert [size for size in range(90, 200) if sizes.allowed(size)] == [128, 160, 192]
    assert BatchSize.parse({"max": 8}).minimum == 1


@pytest.mark.parametrize(
    ("section", "written", "key", "value"),
    [
        (Options, {"optimizer_offload": True}, "optimizer_offload", 1.0),
        (Options, {"optimizer_offload": False}, "optimizer_offload", 0.0),
        (Options, {"optimizer_offload": 0.25}, "optimizer_offload", 0.25),
        (Options, {"recompute": ["moe", "layernorm"]}, "recompute", ("layernorm", "moe")),
        (Options, {"recompute": []}, "recompute", "none"),
        (Options, {"cuda_graphs": ["moe_router", "attn"]}, "cuda_graphs", ("attn", "moe_router")),
        (Options, {"pipeline_layout": "Et*3|(tt|)*29m|L"}, "pipeline_layout", "Et*3|(tt|)*29m|L"),
        (Limits, {"ep_within_domain": False}, "ep_within_domain", False),
        (Limits, {"memory_headroom": 0}, "memory_headroom", 0.0),
        (Framework, {"version": "0.15.2"}, "release", (0, 15, 2)),
        (Training, {"load_imbalance": 2}, "load_imbalance", 2.0),
    ],
)
def test_normal_forms(section: Any, written: dict[str, Any], key: str, value: Any) -> None:
    """Tests that each option has one form, whichever way it was written."""
    found = getattr(section.model_validate(written), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("key", ["tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga"])
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 4.0, True, "4", 10**12, float("nan"), [], [0], {}, {"min": 5, "max": 4}]
)
def test_bad_pins(key: str, value: Any) -> None:
    """Tests that no pin takes zero, negatives, fractions, booleans, text or absurd numbers."""
    with pytest.raises(ValidationError):
        LayoutPins.model_validate({key: value})


@pytest.mark.parametrize(
    "written",
    [
        {"status": "infeasible", "layout": {"tp": 1}},
        {"status": "infeasible", "dispatcher": "deepep"},
        {"status": "optimal", "conflict": ["memory-capacity"]},
        {"status": "infeasible", "conflict": []},
        {"status": "infeasible", "conflict": ["Memory Capacity"]},
        {"status": "optimal", "recompute": "auto"},
        {"status": "unknown"},
        {},
    ],
)
def test_contradicting_expectations(written: dict[str, Any]) -> None:
    """Tests that an expectation that no answer can meet is refused."""
    with pytest.raises(ValidationError):
        Expect.model_validate(written)


def test_stated_degrees() -> None:
    """Tests that only the written degrees are expected."""
    expect = Expect.model_validate({"status": "optimal", "layout": {"ep": 32, "gpus": 256}})
    assert expect.layout.stated() == {"ep": 32, "gpus": 256}


def test_frozen_and_hashable() -> None:
    """Tests that scenarios cannot change, and serve as keys."""
    scenario = Scenario.model_validate(small(model={"card": "toy-moe", "mtp_layers": 0}))
    with pytest.raises(ValidationError):
        scenario.name = "other"
    assert {scenario: 1}[scenario.model_copy()] == 1


def test_source_is_not_dumped() -> None:
    """Tests that dumps hold the file's keys only."""
    assert set(Scenario.model_validate(small()).model_dump()) == set(Scenario.model_fields)


def test_json_schema() -> None:
    """Tests that editors get every key with a description, and a card's keys for the model."""
    schema = json_schema()
    json.dumps(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "meshplan scenario"
    assert set(schema["properties"]) == set(Scenario.model_fields)
    assert schema["required"] == ["meshplan", "name", "model", "cluster", "workload"]
    for section in ("Workload", "LayoutPins", "Options", "Limits", "Training", "ClusterSpec"):
        for key, described in schema["$defs"][section]["properties"].items():
            assert described.get("description"), f"{section}.{key}"
        assert schema["$defs"][section]["additionalProperties"] is False
    changed_card = schema["properties"]["model"]["anyOf"][2]
    assert "mtp_layers" in changed_card["properties"]
    seq_len = schema["$defs"]["Workload"]["properties"]["seq_len"]
    assert (seq_len["minimum"], seq_len["maximum"]) == (1, 16_777_216)


def test_json_schema_has_no_loose_references() -> None:
    """Tests that every reference in the JSON Schema leads to a definition."""
    schema = json_schema()
    text = json.dumps(schema)
    for piece in text.split('"$ref": "#/$defs/')[1:]:
        assert piece.split('"')[0] in schema["$defs"]
