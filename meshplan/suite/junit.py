"""Outcomes as JUnit XML, which CI services read; the elements are those of Jenkins' junit-10."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from meshplan.suite.case import Case

#: What XML 1.0 cannot hold: control characters, and bytes of file names that are no UTF-8.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
#: Why a case counts as skipped.
_SKIPPED = {"open": "no expectation", "not run": "the run ended before"}


def junit_xml(cases: Sequence[Case], wall_s: float) -> str:
    """One suite with a test case a scenario; ``wall_s`` is how long all took.

    A scenario without expectation counts as skipped, and so does one that was not run.
    """
    counts = {
        "tests": len(cases),
        "failures": sum(case.outcome == "FAIL" for case in cases),
        "errors": sum(case.outcome == "ERROR" for case in cases),
        "skipped": sum(case.outcome in _SKIPPED for case in cases),
    }
    written = {name: str(count) for name, count in counts.items()}
    suite = Xml.Element("testsuite", {"name": "meshplan", **written, "time": f"{wall_s:.3f}"})
    for case in cases:
        suite.append(_entry(case))
    root = Xml.Element("testsuites", name="meshplan")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _entry(case: Case) -> Xml.Element:
    entry = Xml.Element(
        "testcase",
        classname="scenarios",
        name=_CONTROL.sub("?", case.file.as_posix()),
        time=f"{case.seconds:.3f}",
    )
    text = _CONTROL.sub("?", "\n".join(fault.text for fault in case.faults))
    message = text.partition("\n")[0]
    if case.outcome == "FAIL":
        Xml.SubElement(entry, "failure", type="expectation", message=message).text = text
    elif case.outcome == "ERROR":
        Xml.SubElement(entry, "error", type=case.said, message=message).text = text
    elif case.outcome in _SKIPPED:
        Xml.SubElement(entry, "skipped", message=_SKIPPED[case.outcome])
    if case.said:
        Xml.SubElement(entry, "system-out").text = _CONTROL.sub("?", case.said)
    return entry


__all__ = ["junit_xml"]
