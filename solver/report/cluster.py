"""The GPUs of the cluster: how many are used, which stay idle, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from meshplan.constraints.problem import Problem
from meshplan.solver.report.words import seconds
from meshplan.solver.results import TriedPart
from meshplan.topologies.packing import packed_gpus, packed_sizes

#: Larger numbers of GPUs that a report explains, at most.
_EXPLAINED = 3


def cluster_data(problem: Problem, parts: Sequence[TriedPart] = ()) -> dict[str, Any]:
    """GPUs by NVLink domain, used and idle; ``parts`` are those that were chosen from."""
    whole = problem.cluster if problem.whole is None else problem.whole
    part = problem.part
    sizes = whole.domains if part is None else packed_sizes(whole, part.group, part.gpus)
    kinds = Counter(zip(whole.domains, sizes, strict=True))
    return {
        "gpus": whole.gpus,
        "used": problem.gpus,
        "idle": whole.gpus - problem.gpus,
        "group": None if part is None else part.group,
        "domains": [
            {"gpus": gpus, "used": used, "count": count}
            for (gpus, used), count in sorted(kinds.items(), reverse=True)
        ],
        "idle_because": list(_reasons(problem)),
        "parts": [
            {
                "gpus": one.gpus,
                "group": one.group,
                "status": one.status,
                "step_s": None if one.step_s is None else round(one.step_s, 6),
            }
            for one in parts
        ],
    }


def _reasons(problem: Problem) -> Iterator[dict[str, Any]]:
    whole, part = problem.whole, problem.part
    if whole is None or part is None:
        return
    packed = packed_gpus(whole.domains, part.group)
    if packed < whole.gpus:
        yield {"gpus": whole.gpus - packed, "why": "beside-groups"}
    if part.gpus < packed:
        yield {"gpus": packed - part.gpus, "why": "not-faster" if problem.gpus_open else "asked"}


def used_rows(problem: Problem, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of the summary about the GPUs that are used and those that stay idle."""
    cluster = data["cluster"]
    if data["status"] == "infeasible" and problem.gpus_open:
        conflict = f"the conflict is that of {cluster['used']:,}"
        yield "GPUs", f"no number of them has a plan; {conflict}"
    if data["layout"] is None or not cluster["idle"]:
        return
    share = cluster["used"] / cluster["gpus"]
    yield "GPUs", f"{cluster['used']:,} of {cluster['gpus']:,} used ({share:.1%})"
    yield "idle", "; ".join(_idle_texts(data))


def _idle_texts(data: dict[str, Any]) -> Iterator[str]:
    cluster = data["cluster"]
    for one in cluster["idle_because"]:
        if one["why"] == "beside-groups":
            group = cluster["group"]
            yield f"{one['gpus']:,} fill no group of {group} in their NVLink domain"
        elif one["why"] == "asked":
            yield f"{one['gpus']:,} more than the scenario asks for"
        else:
            yield f"{one['gpus']:,} as {_larger(data)}"


def _larger(data: dict[str, Any]) -> str:
    """Why no larger number of GPUs is used."""
    cluster = data["cluster"]
    larger = [one for one in cluster["parts"] if one["gpus"] > cluster["used"]]
    if not larger:
        return "no larger number suits the degrees and the batch"
    nearest = sorted(larger, key=lambda one: one["gpus"])[:_EXPLAINED]
    texts = [_tried_text(one) for one in nearest]
    if rest := len(larger) - len(nearest):
        texts.append(f"and {rest} more")
    return f"no larger number beats {seconds(data['proof']['objective'])}: {', '.join(texts)}"


def _tried_text(one: dict[str, Any]) -> str:
    where = f"{one['gpus']:,} (in groups of {one['group']})"
    if one["status"] == "none":
        return f"{where} have no plan"
    if one["status"] == "open":
        return f"{where} are not searched to the end"
    return f"{where} take at least {seconds(one['step_s'])}"


__all__ = ["cluster_data", "used_rows"]
