"""A diagnosis as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from meshplan.solver.diagnosis.result import Diagnosis
from meshplan.solver.report.diagnosis_words import (
    change_text,
    conflict_note,
    conflicts_note,
    cut_text,
    members,
    no_help_rows,
    result_text,
    shown_conflicts,
    stated_text,
    verdict_text,
)
from meshplan.solver.report.summary import question_rows

#: Characters that would be read as markup; an underscore inside a name is none.
_MARKUP = re.compile(r"([\\`*\[\]<>|#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def diagnosis_markdown(found: Diagnosis) -> str:
    """The whole report as Markdown, with a line end."""
    data = found.to_json()
    return "\n\n".join(_blocks(found, data)) + "\n"


def _blocks(found: Diagnosis, data: dict[str, Any]) -> Iterator[str]:
    yield f"### {_plain(found.problem.name)}: {_plain(verdict_text(data))}"
    shown = [*question_rows(found.problem)]
    if found.stated:
        shown.append(("layout", stated_text(found)))
    if found.plan is not None:
        figures = {**data, **data["time"], **data["memory"]}
        shown.append(("best plan", result_text(figures)))
    yield "\n".join(f"- {label}: {_plain(text)}" for label, text in shown)
    if data["status"] == "infeasible":
        yield f"**Why.** {_plain(data['cause'])}"
    if data["conflicts"]:
        yield "**What clashes.** " + _plain(conflicts_note(data))
        yield "\n".join(_conflicts(data))
    if data["near_misses"]:
        yield "**What it is close to**"
        yield "\n".join(f"- {_plain(text)}" for text in data["near_misses"])
    if data["repairs"]:
        yield "**What would help, each by itself**"
        yield "\n".join(_repairs(data))
    if data["no_help"]:
        yield "**What does not help by itself**"
        useless = no_help_rows(data)
        yield "\n".join(f"- {_plain(levers)}: {_plain(reason)}" for levers, reason in useless)
    if data["cut_short"]:
        yield f"**Cut short by the limit:** {_plain(cut_text(data))}"
    if data["assumed"]:
        listed = "\n".join(f"- {_plain(text)}" for text in data["assumed"])
        yield f"<details><summary>Assumed</summary>\n\n{listed}\n\n</details>"


def _conflicts(data: dict[str, Any]) -> Iterator[str]:
    for number, one in enumerate(shown_conflicts(data), 1):
        text = one["text"] if number > 1 else ""  # of the first one the cause says it
        rest = _plain((text + conflict_note(one)).strip())
        yield f"{number}. `{members(one)}`" + (f"  \n   {rest}" if rest else "")


def _repairs(data: dict[str, Any]) -> Iterator[str]:
    yield "| change | verified | plan |"
    yield "|---|---|---|"
    for one in data["repairs"]:
        plan = "" if one["result"] is None else result_text(one["result"])
        mark = "yes" if one["verified"] else "no, the time was up"
        yield f"| {_plain(change_text(data, one))} | {mark} | {_plain(plan)} |"


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
