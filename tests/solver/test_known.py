from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver import axes as axes_module
from meshplan.solver.axes import Axes
from meshplan.solver.changed import with_node
from meshplan.solver.costs import cell_costs, memory_costs
from meshplan.solver.judge import active_rules
from meshplan.solver.known import _NOT_READ, Known, known_of, twin
from meshplan.solver.space import build_axes
from tests.solver.small import small

#: Limits of memory that follow from fields which do not tell problems apart.
_LIMITS = frozenset(("capacity", "host_capacity", "uses_host_memory", "pinned", "domain"))


class _Guarded(Problem):
    """A problem of which only that may be read by which values are shared."""

    def __getattribute__(self, name: str) -> Any:
        assert name not in _NOT_READ | _LIMITS, f"{name} is read"
        return super().__getattribute__(name)


def _guarded(problem: Problem) -> Problem:
    guarded: Problem = object.__new__(_Guarded)
    object.__getattribute__(guarded, "__dict__").update(
        {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}
    )
    return guarded


@pytest.mark.parametrize("model", ["toy-moe", "deepseek-v3", "llama-3.1-8b", "qwen3-next-80b-a3b"])
def test_terms_and_rules_read_only_what_tells_problems_apart(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that no term or rule reads a field that two problems with shared values differ in."""
    problem = small(model=model, options={"cuda_graphs": "auto"})
    if model == "toy-moe":
        training = dataclasses.replace(problem.training, activation_offload=("core_attn",))
        problem = dataclasses.replace(problem, training=training)
    monkeypatch.setattr(axes_module, "known_of", lambda _: Known())
    for pp in (1, 2):
        built = build_axes(problem, pp, active_rules(problem), problem.pinned, [1])
        axes = Axes(_guarded(problem), pp, built.mesh_names, built.mesh[:40], built.others)
        cell_costs(axes, memory_costs(axes))
        axes.allowed(active_rules(problem))


def test_values_are_shared_where_terms_read_the_same() -> None:
    """Tests that memory, batch sizes and pins change no value, but a longer sequence does."""
    problem = small()
    same = [
        with_node(problem, {"hbm_gib": 200.0, "host_memory_gib": 1.0}),
        dataclasses.replace(problem, pins=(), even_split=True),
        dataclasses.replace(
            problem, limits=dataclasses.replace(problem.limits, memory_headroom=0.5)
        ),
        small(),
    ]
    assert all(known_of(other) is known_of(problem) for other in same)
    others = [
        dataclasses.replace(problem, seq_len=8192),
        with_node(problem, {"hbm_tbps": 1.0}),
        dataclasses.replace(problem, limits=dataclasses.replace(problem.limits, min_dp=2)),
    ]
    assert all(known_of(other) is not known_of(problem) for other in others)


def test_tables_of_splits_are_shared_where_the_layers_are_the_same() -> None:
    """Tests that the cluster does not matter to them, but the split does."""
    problem = small()
    assert twin(with_node(problem, {"hbm_tbps": 1.0})) is twin(small()) is twin(problem)
    assert twin(dataclasses.replace(problem, even_split=True)) is not twin(problem)
    assert twin(small(model={"card": "toy-moe", "layers": 7})) is not twin(problem)


def test_a_value_is_asked_for_once() -> None:
    """Tests a table that grows along both dimensions, and keeps what it knows."""
    known, asked = Known(), []
    rows = [known.codes(("tp",), [(1,), (2,)]), known.codes(("tp",), [(2,), (4,)])]
    columns = [known.codes(("pp",), [(1,)]), known.codes(("pp",), [(8,), (1,)])]
    assert [row.tolist() for row in rows] == [[0, 1], [1, 2]]
    tables = []
    for row, column in zip(rows, columns, strict=True):

        def value(position: Any, row: Any = row, column: Any = column) -> int:
            asked.append((row[position[0]], column[position[1]]))
            return 10 * int(row[position[0]]) + int(column[position[1]])

        tables.append(known.table("term", (row, column), value).tolist())
    assert tables == [[[0], [10]], [[11, 10], [21, 20]]]
    assert len(asked) == len(set(asked)) == 5


def test_scenario_values_are_read_once_for_all_pipeline_degrees() -> None:
    """Tests that the key of a problem does not hang on how it was written."""
    data = {
        "meshplan": 1,
        "name": "a",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": 8},
        "workload": {"seq_len": 4096, "global_batch_size": 8},
    }
    first, second = resolve(from_mapping(data)), resolve(from_mapping({**data, "name": "b"}))
    assert known_of(first) is known_of(second)
