"""Words of a diagnosis that its reports share, whatever their form."""

from __future__ import annotations

from typing import Any

from meshplan.solver.changed import asked_value
from meshplan.solver.diagnosis.facts import MEMORY
from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.diagnosis.words import joined
from meshplan.solver.report.words import offload_text, recompute_text, short_layout

#: Conflicts that a report shows; JSON has all.
MOST_SHOWN = 4
#: What a limit left unfinished, in words.
_CUT = {
    "verdict": "whether anything fits",
    "conflict": "the conflict is not proved minimal",
    "repairs": "not all repairs were tried",
    "conflicts": "further conflicts were not all looked for",
    "example": "no example layout was made",
    "near_misses": "what the plan is close to was not all looked at",
}


def verdict_text(data: dict[str, Any]) -> str:
    """The answer in a sentence."""
    if data["status"] == "infeasible":
        if data["arithmetic"]:
            return "Nothing fits: arithmetic alone shows that no layout can exist."
        return "Nothing fits: it is proved that no layout obeys all rules, pins and limits."
    if data["status"] == "unknown":
        return "Unknown: the time was up before it was known whether anything fits."
    if data["near_misses"]:
        return "It fits, with little room."
    return "It fits, with room on all sides that were looked at."


def stated_text(found: Diagnosis) -> str:
    """The layout that was given, as its pins."""
    pins = {pin.path: pin.text for pin in found.problem.pins}
    written = (
        pins.get(path, f"{path} = {asked_value(found.problem, path)}") for path in found.stated
    )
    return ", ".join(text.partition(".")[2] for text in written)


def members(conflict: dict[str, Any]) -> str:
    """The facts of a conflict: fields joined by plus signs, then rules."""
    if (conflict["rules"], conflict["pins"]) == ([MEMORY], []):
        return "the memory of a GPU, whatever the scenario pins"
    rules = [f"rule {rule}" for rule in conflict["rules"] if rule != MEMORY]
    memory = ["the memory of a GPU"] if MEMORY in conflict["rules"] else []
    return " + ".join([*conflict["pins"], *rules, *memory])


def conflict_note(conflict: dict[str, Any]) -> str:
    """What is not proved of a conflict."""
    if conflict["minimal"]:
        return ""
    return " (Not proved minimal: some of these may be beside the point.)"


def shown_conflicts(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The conflicts of a report: the first, then those with the fewest members."""
    first, *others = data["conflicts"]
    ranked = sorted(others, key=lambda one: (len(one["rules"]), len(one["pins"])))
    return [first, *ranked[: MOST_SHOWN - 1]]


def conflicts_note(data: dict[str, Any]) -> str:
    """What a conflict is, and how far the list of them goes."""
    found = data["conflicts"]
    text = ""
    if any(len(one["rules"]) + len(one["pins"]) > 1 and one["minimal"] for one in found):
        text = "Take away any one member of a conflict, and the rest of it can hold together. "
    more = len(found) - MOST_SHOWN
    if more > 0:
        text += f"{more} more {'is' if more == 1 else 'are'} in the JSON. "
    if not data["complete"]:
        return text + "There may be others."
    if len(found) == 1:
        return text + "There is no other conflict."
    return text + "There are no others; each of them has to be resolved."


def change_text(data: dict[str, Any], repair: dict[str, Any]) -> str:
    """A repair in words; of a given layout, what of it is kept."""
    if not data["stated"] or repair["lever"] == "layout":
        return str(repair["change"])
    paths = [one["path"].rpartition(".")[2] for one in repair["changes"]]
    return f"keep all but {joined(paths)}: {repair['change']}"


def no_help_rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Levers that cannot help, those of one reason together; the reason last."""
    same = {data["cause"], *(one["text"] for one in data["conflicts"][:1])}
    levers: dict[str, list[str]] = {}
    for one in data["no_help"]:
        reason = "what clashes stays as it is" if one["reason"] in same else one["reason"]
        levers.setdefault(reason, []).append(one["lever"])
    return [(joined(names), reason) for reason, names in levers.items()]


def cut_text(data: dict[str, Any]) -> str:
    """What a limit left unfinished."""
    return "; ".join(_CUT[part] for part in dict.fromkeys(data["cut_short"]))


def result_text(result: dict[str, Any]) -> str:
    """The plan that a repair buys, in a line."""
    memory = f"{result['peak_gib']:.1f} of {result['capacity_gib']:.1f} GiB"
    layout = short_layout(result)
    offload = f", optimizer {offload_text(result)}" if result["optimizer_offload"] else ""
    doubt = " (a faster one is not ruled out)" if result["status"] == "feasible" else ""
    return (
        f"{result['tokens_per_s_per_gpu']:,.0f} tokens/s per GPU, dp {result['layout']['dp']}, "
        f"{memory}: {layout}, recompute {recompute_text(result)}{offload}{doubt}"
    )
