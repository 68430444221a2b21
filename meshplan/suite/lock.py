"""``meshplan.lock``: the answers to scenarios, so that a change of one shows in review.

TOML with a table a scenario, sorted by path, one line a decision: degrees, memory and throughput
stand on lines of their own, and what is as before makes no difference.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from meshplan import __version__
from meshplan.scenarios.checks import shown
from meshplan.scenarios.errors import InputError, printable
from meshplan.scenarios.files import read_file
from meshplan.suite.answer import Answer
from meshplan.suite.case import Case, Fault

_FORMAT = 1
_HEAD = "# The answers to scenarios, by `meshplan test --lock`; `--locked` holds to them."
_ADVICE = "delete it, and write it anew with meshplan test --lock."
#: What git puts into a file that both sides of a merge changed.
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
#: Largest lock that is read, in bytes: some 50,000 scenarios.
_MOST_BYTES = 32 << 20

Entry = Mapping[str, str | float]


def entry_of(answer: Answer) -> Entry:
    """An answer as the lock has it: what was decided, and what that costs in rounded figures."""
    if not answer.layout:
        conflicts = "; ".join(", ".join(rules) for rules in answer.conflicts)
        return {"status": answer.status, "conflict": conflicts or "none"}
    assert answer.peak_gib is not None and answer.step_s is not None
    assert answer.tokens_per_s_per_gpu is not None and answer.dispatcher is not None
    degrees = {name: value for name, value in answer.layout.items() if name != "gpus"}
    return {
        "status": answer.status,
        "layout": " ".join(f"{name}={value}" for name, value in degrees.items()),
        "gpus": answer.layout["gpus"],
        "pipeline": answer.pipeline or "none",
        "recompute": ", ".join(answer.recompute) or "none",
        "optimizer_offload": answer.offload,
        "dispatcher": answer.dispatcher,
        "cp_comm": answer.cp_comm or "none",
        "cuda_graphs": ", ".join(answer.graphs) or "none",
        "peak_gib": round(answer.peak_gib, 2),
        "step_s": _rounded(answer.step_s),
        "tokens_per_s_per_gpu": _rounded(answer.tokens_per_s_per_gpu),
        "calibration": answer.calibration or "none",
    }


def _rounded(value: float) -> float:
    """Four significant digits: far below the error of the model, far above that of arithmetic."""
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded


@dataclass(frozen=True)
class Lock:
    """What a lock file holds.

    Attributes
    ----------
    file
        Where it is; paths of scenarios start in its folder.
    meshplan
        Version that wrote it.
    entries
        Answer by path.
    text
        The file as it stands; empty if there is none.
    """

    file: Path
    meshplan: str = __version__
    entries: Mapping[str, Entry] = field(default_factory=dict)
    text: str = ""

    def name_of(self, scenario: Path) -> str:
        """The path by which the lock knows a scenario."""
        whole = os.path.join(os.path.realpath(scenario.parent), scenario.name)
        return printable(Path(os.path.relpath(whole, self._folder)).as_posix())

    def _is_there(self, name: str) -> bool:
        return os.path.isfile(os.path.join(self._folder, name))

    @property
    def _folder(self) -> str:
        return os.path.realpath(self.file.parent)

    def held(self, case: Case) -> Case:
        """The case, failed if its answer is not the one of the lock."""
        if case.answer is None:
            return case
        faults = tuple(self._faults(self.name_of(case.file), entry_of(case.answer)))
        if not faults:
            return case
        return replace(case, outcome="FAIL", faults=(*case.faults, *faults))

    def _faults(self, name: str, entry: Entry) -> Sequence[Fault]:
        kept = self.entries.get(name)
        if kept is None:
            return [self._fault(f"{self.file.name} has no answer to this scenario", name, None)]
        return [
            self._fault(f"{self.file.name}: {_difference(key, kept, entry)}", name, key)
            for key in {**kept, **entry}
            if kept.get(key) != entry.get(key)
        ]

    def _fault(self, text: str, name: str, key: str | None) -> Fault:
        return Fault(text, str(self.file), self._line(name, key))

    def _line(self, name: str, key: str | None) -> int:
        """Line of a key of an entry, else of the entry, else the first."""
        lines = self.text.split("\n")
        head = _table(name)
        if head not in lines:
            return 1
        start = lines.index(head)
        for number, line in enumerate(lines[start + 1 :], start + 2):
            if line.startswith("["):
                break
            if key is not None and line.startswith(f"{key} = "):
                return number
        return start + 1

    def vanished(self) -> Case | None:
        """A failed case for the lock itself if it has answers to scenarios that are no more."""
        names = [
            name for name in self.entries if not os.path.isfile(os.path.join(self._folder, name))
        ]
        if not names:
            return None
        texts = {name: f"it has an answer to {name}, which is no more" for name in names}
        faults = tuple(self._fault(text, name, None) for name, text in texts.items())
        return Case(self.file, "FAIL", faults=faults, said="write it anew with --lock")

    def with_answers(self, cases: Sequence[Case]) -> Lock:
        """The lock with the answers of ``cases``, and without scenarios that are no more."""
        new = {self.name_of(one.file): entry_of(one.answer) for one in cases if one.answer}
        kept = {
            name: entry
            for name, entry in self.entries.items()
            if name in new or self._is_there(name)
        }
        return Lock(self.file, __version__, {**kept, **new})

    def changes_from(self, old: Lock) -> str:
        """How many answers are new, other and gone: ``2 changed, 1 added``."""
        both = self.entries.keys() & old.entries.keys()
        counts = {
            "as before": sum(self.entries[name] == old.entries[name] for name in both),
            "changed": sum(self.entries[name] != old.entries[name] for name in both),
            "added": len(self.entries.keys() - both),
            "removed": len(old.entries.keys() - both),
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "empty"

    def dumps(self) -> str:
        """The text of the file."""
        head = [_HEAD, f"version = {_FORMAT}", f"meshplan = {json.dumps(self.meshplan)}"]
        for name, entry in sorted(self.entries.items()):
            head += ["", _table(name)]
            head += [f"{key} = {_toml(value)}" for key, value in entry.items()]
        return "\n".join(head) + "\n"


def _difference(key: str, kept: Entry, entry: Entry) -> str:
    """How an answer differs in one key; of the layout only the degrees that do."""
    was, now = str(kept.get(key, "none")), str(entry.get(key, "none"))
    if key == "layout" and len(was.split()) == len(now.split()):
        pairs = [pair for pair in zip(was.split(), now.split(), strict=True) if pair[0] != pair[1]]
        was, now = (" ".join(pair[side] for pair in pairs) for side in (0, 1))
    return f"{key} was {was}, and is {now}"


def _table(name: str) -> str:
    return f"[scenario.{_toml(name)}]"


def _toml(value: str | float) -> str:
    # A JSON string is a TOML string, but for DEL, which no printable text has.
    return json.dumps(value, ensure_ascii=False)


def read_lock(path: str | Path) -> Lock:
    """The lock at ``path``.

    Raises
    ------
    InputError
        If it cannot be read, or is no lock.
    """
    text = read_file(path, _MOST_BYTES)
    if marked := _CONFLICT.search(text):
        line = text.count("\n", 0, marked.start()) + 1
        raise InputError(
            "there are marks of a merge conflict in the lock",
            advice=_ADVICE,
            file=str(path),
            line=line,
        )
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"the lock is damaged: {error}", advice=_ADVICE, file=str(path)) from None
    if data.get("version") != _FORMAT:
        raise InputError(
            f"version is {shown(data.get('version'))}, but this meshplan reads locks of {_FORMAT}",
            advice=_ADVICE,
            file=str(path),
        )
    entries = data.get("scenario", {})
    tables = entries.values() if isinstance(entries, dict) else [None]
    if not all(isinstance(entry, dict) for entry in tables):
        raise InputError(
            "the lock is damaged: scenario is no table", advice=_ADVICE, file=str(path)
        )
    return Lock(Path(path), str(data.get("meshplan")), entries, text)


__all__ = ["Lock", "entry_of", "read_lock"]
