"""Tests of reading scenarios: overrides, lines, resolution, and what bad input is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.loader import from_mapping, load, loads, resolve_cluster, resolve_model
from meshplan.scenarios.schema import Scenario

GOOD = """\
meshplan: 1
name: dsv3-h100-128k
description: A scenario with every section.
model: {card: deepseek-v3, mtp_layers: 0}
cluster:
  preset: h100-hgx
  gpus: 256
workload:
  seq_len: 131072
  global_batch_size: {min: 128, max: 512, multiple_of: 32}
  precision: fp8-block
  variable_length: false
layout: {tp: 1, cp: [16, 32], pp: {min: 2, max: 16}, cp_comm: p2p}
options:
  recompute: [mla_up_proj, layernorm, moe, mlp]
  optimizer_offload: 0.5
  dispatcher: deepep
  cuda_graphs: none
  pipeline_layout: "Et|(tt|)*30L"
limits: {memory_headroom: 0.08, min_dp: 1, tp_within_domain: true}
objective: {maximize: throughput, dp_tolerance: 0.02}
framework: {name: megatron-core, version: "0.19"}
training: {moment_dtype: bf16, load_imbalance: 1.2}
expect:
  status: optimal
  layout: {ep: 32}
  dispatcher: deepep
"""


def refusal(text: str, *overrides: str) -> InputError:
    """The error that loading, or resolving, ``text`` raises."""
    with pytest.raises(InputError) as caught:
        scenario = loads(text, "case.yaml", overrides)
        resolve_model(scenario)
        resolve_cluster(scenario)
    return caught.value


def changed(old: str, new: str) -> str:
    """The good scenario with one piece replaced."""
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_good_scenario(tmp_path: Path) -> None:
    """Tests that a file with every section is read and resolved, from disk and from text."""
    path = tmp_path / "good.yaml"
    path.write_text(GOOD, encoding="utf-8")
    scenario = load(path)
    assert scenario == loads(GOOD)
    assert scenario.source.file == str(path)
    assert resolve_model(scenario).layers == 61
    assert resolve_cluster(scenario).gpus == 256


def test_lines() -> None:
    """Tests that values know their lines, and values left open have none."""
    scenario = loads(GOOD, "case.yaml", ["cluster.gpus=512"])
    assert scenario.line_of("workload.seq_len") == ("case.yaml", 9)
    assert scenario.line_of("layout.cp[1]") == ("case.yaml", 13)
    assert scenario.line_of("limits.ep_within_domain") is None
    assert scenario.line_of("cluster.gpus") is None
    error = scenario.error_at("limits.ep_within_domain", "text")
    assert (error.file, error.line) == ("case.yaml", 20)
    error = scenario.error_at("cluster.gpus", "too many")
    assert str(error) == "override 'cluster.gpus=512': too many"
    assert from_mapping(json.loads(scenario.model_dump_json())).line_of("name") is None


def test_dumps_are_scenarios() -> None:
    """Tests that a dumped scenario is read as the same scenario."""
    scenario = loads(GOOD)
    assert from_mapping(scenario.model_dump()) == scenario
    assert from_mapping(json.loads(scenario.model_dump_json())) == scenario


def test_empty_sections_are_absent() -> None:
    """Tests that a section whose keys are all commented out is like no section."""
    text = changed("layout: {tp: 1, cp: [16, 32], pp: {min: 2, max: 16}, cp_comm: p2p}", "layout:")
    assert loads(text).layout.tp is None


def test_overrides() -> None:
    """Tests that overrides replace, add, and take away, in their order."""
    overrides = (
        "workload.seq_len=4096",
        "workload.seq_len=8192",
        "layout.cp=[1, 2]",
        "layout.tp=",
        "cluster.gpus=null",
        "cluster.nodes=4",
        "workload.global_batch_size={max: 64}",
        "framework.version='0.15'",
        "expect=",
    )
    scenario = loads(GOOD, overrides=overrides)
    assert scenario.workload.seq_len == 8192
    assert scenario.layout.cp is not None
    assert scenario.layout.cp.values == (1, 2)
    assert scenario.layout.tp is None
    assert resolve_cluster(scenario).gpus == 32
    assert scenario.workload.global_batch_size.maximum == 64
    assert scenario.framework.release == (0, 15)
    assert scenario.expect is None


def test_override_of_a_card_field() -> None:
    """Tests that a figure below a plain card name makes a changed card."""
    text = changed("model: {card: deepseek-v3, mtp_layers: 0}", "model: deepseek-v3")
    assert resolve_model(loads(text)).mtp_layers == 1
    card = resolve_model(loads(text, overrides=["model.mtp_layers=0"]))
    assert card.mtp_layers == 0
    # The announced totals are about the unchanged model.
    assert card.published is None


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workload.seq_len", "not of the form key=value"),
        ("=5", "not of the form key=value"),
        ("a..b=5", "not of the form key=value"),
        ("workload.seq_len=long", "workload.seq_len is 'long'"),
        ("workload.seq_len=[1", "malformed YAML"),
        ("workload.seq_len=.nan", ".nan is not a finite number"),
        ("workload.seqlen=5", "workload.seqlen is an unknown key (value 5)"),
        ("layuot.tp=5", "layuot is an unknown key"),
        ("cluster.gpus.x=1", "cluster.gpus is 256, which has no keys"),
        ("cluster.nodes=8", "cluster.nodes is 8, but must be the only one"),
        ("cluster.gpus=9", "gpus (9)"),
        ("model=deepseek-v4", "deepseek-v4"),
        ("model.layrs=3", "model.layrs is an unknown key (value 3)"),
    ],
)
def test_bad_overrides_are_named(override: str, words: str) -> None:
    """Tests that an error in an override names the override and no line of the file."""
    error = refusal(GOOD, override)
    assert error.message.startswith(f"override '{override}")
    assert words in error.message
    assert error.line is None


@pytest.mark.parametrize(
    ("old", "new", "line", "words", "advice"),
    [
        ("meshplan: 1", "meshplan: 2", 1, "meshplan is 2, but must be 1", "write 1."),
        ("meshplan: 1", "meshplan: true", 1, "meshplan is true", ""),
        ("name: dsv3-h100-128k", "name: My Run", 2, "name is 'My Run'", "write my-run"),
        ("  gpus: 256", "  gpus: 1000000000000", 7, "is 1000000000000", "1 to 1048576"),
        ("  gpus: 256", "  gpus: 0", 7, "cluster.gpus is 0", "1 to 1048576"),
        ("  gpus: 256", "  gpus: -8", 7, "cluster.gpus is -8", "1 to 1048576"),
        ("  gpus: 256", "  gpus: 2k", 7, "cluster.gpus is '2k'", "write 2048, as a plain"),
        ("  gpus: 256", "  gpus: 2.5", 7, "cluster.gpus is 2.5", "integer"),
        ("  gpus: 256", "  gpus: 1e3", 7, "cluster.gpus is 1000.0", "write 1000, without"),
        ("  gpus: 256", "  gpus: 1_024", 7, "cluster.gpus is '1_024'", "write 1024, without"),
        ("  gpus: 256", "  gpus: [256]", 7, "cluster.gpus is the list [256]", "integer"),
        ("  gpus: 256", "  gpus: .nan", 7, ".nan is not a finite number", "finite"),
        ("  gpus: 256", "  gpu: 256", 7, "cluster.gpu is an unknown key (value 256)", "gpus"),
        ("  gpus: 256", "  gpus: 256\n  gpus: 8", 8, "duplicate key 'gpus'", "delete"),
        ("  gpus: 256", "  nodes: 2\n  gpus: 8", 7, "the only one of gpus", "remove"),
        ("  gpus: 256", "  # none", 5, "cluster.gpus is missing", "add gpus"),
        ("  gpus: 256", "  gpus: 9", 7, "gpus (9) is not a multiple of the 8", ""),
        ("  gpus: 256", "  domains: [8, 0]", 7, "cluster.domains[1] is 0", "1 to 1048576"),
        ("  gpus: 256", "  domains: [0]", 7, "cluster.domains[0] is 0", "1 to 1048576"),
        ("  gpus: 256", "  domains: [9]", 7, "domains[0] (9)", ""),
        ("  preset: h100-hgx", "  preset: h100_hgx", 6, "'h100_hgx'", "h100-hgx"),
        ("  preset: h100-hgx", "  node_type: h100-hgx", 6, "cluster.node_type", ""),
        ("  seq_len: 131072", "  # none", 8, "workload.seq_len is missing", "add seq_len"),
        ("  seq_len: 131072", "  seq_len: 16777217", 9, "is 16777217", "1 to 16777216"),
        ("  seq_len: 131072", "  seq_len: '4096'", 9, "is '4096'", "write 4096, without"),
        ("fp8-block", "fp8", 11, "precision is 'fp8'", "fp8-tensor, fp8-current or fp8-block."),
        ("fp8-block", "fp8-blok", 11, "precision is 'fp8-blok'", "you meant fp8-block"),
        ("variable_length: false", "variable_length: no", 12, "is 'no'", "write false"),
        ("min: 128, max: 512", "min: 512, max: 128", 10, "global_batch_size.min is 512", "swap"),
        ("multiple_of: 32", "multipleof: 32", 10, "global_batch_size.multipleof", "multiple_of"),
        ("multiple_of: 32", "multiple_of: 999", 10, "global_batch_size.multiple_of is 999", ""),
        ("cp: [16, 32]", "cp: [16, x]", 13, "layout.cp[1] is 'x'", "integer"),
        ("tp: 1,", "tp: true,", 13, "layout.tp is true", "integer"),
        ("tp: 1,", "tensor: 1,", 13, "layout.tensor is an unknown key (value 1)", ""),
        ("cp_comm: p2p", "cp_comm: ptp", 13, "layout.cp_comm is 'ptp'", "p2p"),
        ("[mla_up_proj, ", "[mla_up_prj, ", 15, "recompute[0] is 'mla_up_prj'", "mla_up_proj"),
        ("optimizer_offload: 0.5", "optimizer_offload: 1.5", 16, "offload is 1.5", "0.5"),
        ("  dispatcher: deepep\n  cuda", "  dispatcher: deep\n  cuda", 17, "'deep'", "deepep"),
        ("cuda_graphs: none", "cuda_graphs: attn", 18, "is 'attn'", "write [attn]"),
        ("cuda_graphs: none", "cuda_graphs: non", 18, "is 'non'", "write none."),
        ("cuda_graphs: none", "activation_offload: yes", 18, "none or a list of", "mlp_norm"),
        ("cuda_graphs: none", "activation_offload: core_atn", 18, "list", "write [core_attn]"),
        ('"Et|(tt|)*30L"', "evn", 19, "pipeline_layout is 'evn'", "you meant even"),
        ("memory_headroom: 0.08", "memory_headroom: 0.9", 20, "is 0.9", "0 to 0.5"),
        ("maximize: throughput", "maximize: dp", 21, "is 'dp'", "throughput"),
        ('version: "0.19"', "version: 0.19", 22, "version is 0.19", 'in quotes, "0.19"'),
        ('version: "0.19"', "transformer_engine: 2.9", 22, "engine is 2.9", 'in quotes, "2.9"'),
        ('version: "0.19"', "transformer_engine: two", 22, "engine is 'two'", 'write "2.16"'),
        ('version: "0.19"', "transformer_engine: 0.19", 22, "engine is 0.19", 'as "2.16"'),
        ('version: "0.19"', 'transformer_engine: "0.19"', 22, "is '0.19'", "of Megatron-Core"),
        ("load_imbalance: 1.2", "load_imbalance: 0.5", 23, "is 0.5", "1 to 1024"),
        ("status: optimal", "status: infeasible", 25, "status is 'infeasible'", "conflict"),
        ("mtp_layers: 0", "mtp_layer: 0", 4, "model.mtp_layer is an unknown key", "mtp_layers"),
        ("mtp_layers: 0", "heads: 0", 4, "model.heads is 0", "from 1 to 4096"),
        ("mtp_layers: 0", "topk: 999", 4, "topk (999) exceeds experts (256)", ""),
        ("card: deepseek-v3", "card: deepseek_v3", 4, "'deepseek_v3'", "deepseek-v3"),
        ("card: deepseek-v3, mtp_layers: 0", "huggingface: no.json", 4, "no such file", ""),
        ("{card: deepseek-v3, mtp_layers: 0}", "[]", 4, "model is an empty list", ""),
        ("{card: deepseek-v3, mtp_layers: 0}", "", 4, "model is missing", ""),
    ],
)
def test_refusals_name_line_value_and_advice(
    old: str, new: str, line: int, words: str, advice: str
) -> None:
    """Tests that one slip in a good file is told with its line, its value and a way out."""
    error = refusal(changed(old, new))
    assert words in error.message
    assert (error.file, error.line) == ("case.yaml", line)
    assert error.advice
    assert advice in error.advice
    assert str(error).count("\n") == 1


def test_several_faults_by_line() -> None:
    """Tests that several slips come in one message, first line first, five at most."""
    text = changed("  gpus: 256", "  gpus: 0").replace("seq_len: 131072", "seq_len: -1")
    text = text.replace("tp: 1, cp: [16, 32]", "tp: 0, cp: 0, dp: 0, ep: 0, vpp: 0")
    told = str(refusal(text))
    assert re.findall(r"case\.yaml:(\d+)", told) == ["7", "9", "13", "13", "13"]
    assert told.endswith("(and 2 more)")


@pytest.mark.parametrize("text", ["5", "[meshplan]", "meshplan", "null"])
def test_no_mapping(text: str) -> None:
    """Tests that a file that holds something else than a mapping is refused on its line."""
    error = refusal(text)
    assert "must be a mapping" in error.message
    assert error.line == 1


@pytest.mark.parametrize(
    ("old", "new", "resolve", "file", "words"),
    [
        (
            "{card: deepseek-v3, mtp_layers: 0}",
            "{huggingface: config.json}",
            resolve_model,
            "config.json",
            "malformed JSON",
        ),
        (
            "  preset: h100-hgx\n  gpus: 256",
            "  topology: t.conf\n  node_type: x",
            resolve_cluster,
            "t.conf",
            "the file is empty",
        ),
    ],
)
def test_files_beside_the_scenario(
    old: str, new: str, resolve: Callable[[Scenario], object], file: str, words: str, tmp_path: Path
) -> None:
    """Tests that files are looked for beside the scenario; an empty one is refused at its line."""
    path = tmp_path / "case.yaml"
    path.write_text(changed(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=f"'{file}', but there is no such file"):
        resolve(load(path))
    (tmp_path / file).write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=words) as caught:
        resolve(load(path))
    assert caught.value.file == str(path)
    assert caught.value.line is not None


def test_inline_model() -> None:
    """Tests that the figures of a card may stand in the scenario itself."""
    figures = (
        "{name: mine, layers: 4, hidden: 256, ffn: 1024, vocab: 32000, heads: 8, kv_groups: 8,"
        " head_dim: 32, attention: gqa}"
    )
    card = resolve_model(loads(changed("{card: deepseek-v3, mtp_layers: 0}", figures)))
    assert (card.name, card.layers, card.is_moe) == ("mine", 4, False)


def test_python_values() -> None:
    """Tests that values which only Python can hold are refused as plainly."""
    good = loads(GOOD).model_dump()
    endless: dict[str, Any] = {}
    endless["layout"] = endless
    for bad in (
        {1: 2},
        {"meshplan": float("nan")},
        {"name": 10**5000},
        {"layout": {"tp": 10**5000}},
        {"layout": {"tp": object()}},
        {"limits": {"memory_headroom": float("inf")}},
        endless,
    ):
        with pytest.raises(InputError):
            from_mapping({**good, **bad})  # type: ignore[dict-item]


def _attempt(read: Any) -> None:
    """Read, resolve and dump; the only exception that may come is InputError."""
    try:
        scenario: Scenario = read()
        scenario.model_dump_json()
        resolve_model(scenario)
        resolve_cluster(scenario)
    except InputError as error:
        assert str(error)
        str(error).encode("utf-8")


@given(st.text(max_size=200))
def test_random_text(text: str) -> None:
    """Tests that no text raises anything but InputError."""
    _attempt(lambda: loads(text))


@given(
    st.integers(0, len(GOOD)),
    st.integers(0, 30),
    st.text(alphabet="abtx019-:[]{}&*!|\"' \n.#,é", max_size=8),
)
def test_random_edits(start: int, removed: int, added: str) -> None:
    """Tests that a random edit of a good file raises nothing but InputError."""
    _attempt(lambda: loads(GOOD[:start] + added + GOOD[start + removed :]))


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(0, 64),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "none", "deepseek-v3", "h100-hgx", "gb200-nvl72", "p2p", "full"]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.sampled_from(["min", "max", "card", "layers", "tp"])),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


@given(st.data(), values)
def test_random_values(data: st.DataObject, value: Any) -> None:
    """Tests that a random value anywhere in a good scenario raises nothing but InputError."""
    scenario = loads(GOOD).model_dump(exclude_none=True)
    section = data.draw(st.sampled_from(sorted(scenario)))
    inner = scenario[section]
    if isinstance(inner, dict) and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from([*sorted(inner), "other"]))] = value
    else:
        scenario[section] = value
    _attempt(lambda: from_mapping(scenario))


@given(st.sampled_from(["layout.tp", "cluster.domains", "model.layers", "x", ""]), st.text())
def test_random_overrides(key: str, value: str) -> None:
    """Tests that no override raises anything but InputError."""
    _attempt(lambda: loads(GOOD, overrides=[f"{key}={value}"]))
