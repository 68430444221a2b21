from __future__ import annotations

from meshplan.solver.results import Plan
from meshplan.solver.solve import solve
from tests.solver.small import small


def test_many_micro_batches_stay_within_64_bits() -> None:
    """Tests 65,536 micro-batches over 8 ranks: products of step times must not overflow.

    With the widest bounds CP-SAT refuses the program, and a refused one is no limit reached.
    """
    problem = small(
        model={"card": "toy-dense", "layers": 60},
        layout={"tp": 1, "pp": 8, "vpp": 1, "dp": 1, "cp": 1, "mbs": 1},
        workload={"seq_len": 4096, "global_batch_size": 1 << 16},
        options={"recompute": "none", "optimizer_offload": 0},
    )
    plan = solve(problem)
    assert isinstance(plan, Plan) and plan.proved
    assert plan.layout.ga == 1 << 16
    assert plan.proof.programs == 1, "the case is one for CP-SAT"
