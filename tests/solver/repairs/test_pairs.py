"""Pairs of levers: each step is the smallest that works, given the other."""

from __future__ import annotations

from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.repairs import Repair
from meshplan.solver.repairs.search import LEVERS, repairs


def test_the_widest_step_of_a_lever_may_be_in_the_way_of_the_other() -> None:
    """Tests offload and GPU type where all of the optimizer state is too much for most hosts.

    16 bytes of each of the 235.1e9 parameters over 16 GPUs are 219 GiB a GPU if all is on the
    hosts: a B200 node leaves 186 GiB for each, a GB200 node 348.  Three quarters are 164 GiB, and
    a B200 has less memory than a GB200.
    """
    scenario = {
        "meshplan": 1,
        "name": "pair",
        "model": "qwen3-235b-a22b",
        "cluster": {"preset": "h100-hgx", "gpus": 16},
        "workload": {"seq_len": 4096, "global_batch_size": 256},
        "layout": {"cp": 2, "etp": 2, "dp": 8},
        "options": {"optimizer_offload": False},
        "limits": {"memory_headroom": 0.08},
    }
    names = ("options.optimizer_offload", "cluster.preset")
    levers = [lever for lever in LEVERS if lever.name in names]
    found = list(repairs(resolve(from_mapping(scenario)), levers=levers))
    pairs = [[c.after for c in one.changes] for one in found if isinstance(one, Repair)]
    assert pairs == [[0.75, "b200-hgx"]]
