"""The words of a conflict: the scenario's own fields and numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from meshplan.constraints.layout import Layout, Value
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES, LayoutRule
from meshplan.constraints.pipeline import parse_layout
from meshplan.constraints.problem import Problem
from meshplan.constraints.rule import Rule
from meshplan.constraints.split_rules import split_rule
from meshplan.solver.diagnosis.facts import PIPELINE_PIN
from meshplan.solver.diagnosis.legality import decision_domains
from meshplan.solver.judge import active_rules
from meshplan.solver.meshes import DEFINING

#: Assignments that are tried for an example of a conflict.
_MOST_EXAMPLES = 20_000
#: Decisions that examples set, in this order; the others follow or stay at their first value.
_SET = ("tp", "cp", "pp", "vpp", "etp", "ep", "gbs", "mbs")


def broken_layout_rules(problem: Problem) -> list[LayoutRule]:
    """Rules on slots that the scenario's layout string breaks, whatever the degrees."""
    if problem.layout_string is None:
        return []
    slots = parse_layout(problem.layout_string)
    layout = Layout(pp=len(slots), vpp=1, slots=slots)
    return [rule for rule in ALL_LAYOUT_RULES if rule.check(problem, layout) is not None]


def layout_fault(problem: Problem, rule: LayoutRule) -> str:
    """What a layout rule says of the scenario's layout string."""
    slots = parse_layout(problem.layout_string or "")
    return rule.check(problem, Layout(pp=len(slots), vpp=1, slots=slots)) or rule.formula


def pin_text(problem: Problem, path: str) -> str:
    """A pinned field as the scenario writes it."""
    if path == PIPELINE_PIN:
        return f"{PIPELINE_PIN} = {problem.layout_string or 'even'}"
    return next(pin.text for pin in problem.pins if pin.path == path)


def sentence(
    problem: Problem, rules: Sequence[str], paths: Sequence[str], memory: str | None
) -> str:
    """The conflict in one sentence: the pins, then what each rule says of an example."""
    known = {rule.id: rule for rule in (*active_rules(problem), split_rule(problem))}
    clashing = [known[rule] for rule in rules]
    reasons = _reasons(problem, clashing, paths)
    if memory is not None:
        reasons.append(memory)
    cause = "; and ".join(reasons) or "; and ".join(_no_value(problem, path) for path in paths)
    cause += _few_powers(problem)
    if not paths:
        starts_with_field = re.match(r"[a-z_]+( =|\*)", cause)
        return f"{cause if starts_with_field else cause[:1].upper() + cause[1:]}."
    return f"Because {joined([pin_text(problem, path) for path in paths])}: {cause}."


def joined(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _few_powers(problem: Problem) -> str:
    """A hint where powers of two, the default candidates, suit the GPU count badly."""
    gpus = problem.gpus
    power = gpus & -gpus
    if power == gpus or power >= 64:
        return ""
    odd = gpus // power
    fewer = gpus // 64 * 64 or 1 << (gpus.bit_length() - 1)
    return (
        f". tp, cp, ep, etp and pp are powers of two unless pinned, and only those up to {power} "
        f"divide {gpus} = {power}*{odd} GPUs: pin another degree (layout.pp: {odd}), or use "
        f"{fewer} GPUs"
    )


def _no_value(problem: Problem, path: str) -> str:
    """Which values a decision may take, when a pin leaves none of them."""
    names = [pin.decision for pin in problem.pins if pin.path == path]
    domains = decision_domains(problem)
    known = [", ".join(str(value) for value in domains[name][:24]) for name in names]
    return "; ".join(
        f"{name} can only be {values}" for name, values in zip(names, known, strict=True)
    )


def _reasons(problem: Problem, rules: Sequence[Rule], paths: Sequence[str]) -> list[str]:
    """What the rules say of the example that breaks the fewest of them."""
    if not rules:
        return []
    best: list[Rule] = list(rules)
    shown: dict[str, Value] = {}
    for example in itertools.islice(_examples(problem, rules, paths), _MOST_EXAMPLES):
        broken = [r for r in rules if not r.holds(problem, *(example[n] for n in r.scope))]
        if broken and (not shown or len(broken) < len(best)):
            best, shown = broken, example
            if len(broken) == 1:
                break
    if not shown:
        return [f"{rule.id}: {rule.formula}" for rule in rules]
    reasons = [rule.explain(problem, *(shown[n] for n in rule.scope)) for rule in best]
    # An example always obeys the rules that a derived degree follows from: nothing to tell.
    others = [r.id for r in rules if r not in best and r.id not in DEFINING.values()]
    if others:
        reasons[-1] += f" (nothing satisfies this and {joined(others)} together)"
    return reasons


def _examples(
    problem: Problem, rules: Sequence[Rule], paths: Sequence[str]
) -> Iterator[dict[str, Value]]:
    """Assignments of the rules' decisions, pins respected, small values first."""
    pinned = {pin.decision: pin.values for pin in problem.pins if pin.path in paths}
    scope = {name for rule in rules for name in rule.scope}
    used = [n for n in scope if n not in ("dp", "edp", "ga", "attention_tokens", "moe_tokens")]
    needed = set(used)
    if scope & {"dp", "ga", "edp", "attention_tokens", "moe_tokens"}:
        needed |= {"tp", "cp", "pp", "etp", "ep", "gbs", "mbs"}
    free = [n for n in _SET if n in scope] + [n for n in used if n not in _SET]
    fixed = {n: pinned.get(n, problem.candidates.get(n, (1,)))[0] for n in needed}
    columns = [list(pinned.get(n, problem.candidates.get(n, (1,))))[:64] for n in free]
    for values in itertools.product(*columns):
        example: dict[str, Value] = fixed | dict(zip(free, values, strict=True))
        yield example | _following(problem, example, pinned)


def _following(
    problem: Problem, example: dict[str, Value], pinned: dict[str, tuple[Value, ...]]
) -> dict[str, Value]:
    """Degrees and tokens that follow from the others, rounded down where they do not divide."""
    if "tp" not in example or "gbs" not in example:
        return {}
    tp, cp, pp, etp, ep, gbs, mbs = (
        int(example[n]) for n in ("tp", "cp", "pp", "etp", "ep", "gbs", "mbs")
    )
    dp = int(pinned["dp"][0]) if "dp" in pinned else max(1, problem.gpus // (tp * cp * pp))
    return {
        "dp": dp,
        "edp": int(pinned["edp"][0])
        if "edp" in pinned
        else max(1, problem.gpus // (etp * ep * pp)),
        "ga": int(pinned["ga"][0]) if "ga" in pinned else max(1, gbs // (mbs * dp)),
        **problem.derived(tp, cp, mbs),
    }
