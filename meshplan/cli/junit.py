"""Outcomes as JUnit XML, which CI services read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

if TYPE_CHECKING:
    from meshplan.cli.expectations import Case

#: What XML 1.0 cannot hold: control characters, and bytes of file names that are no UTF-8.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(cases: Sequence[Case]) -> str:
    """One suite with a test case a scenario; a scenario without expectation counts as skipped."""
    count = {
        name: sum(case.outcome == name for case in cases) for name in ("FAIL", "ERROR", "open")
    }
    suite = Xml.Element(
        "testsuite",
        name="meshplan",
        tests=str(len(cases)),
        failures=str(count["FAIL"]),
        errors=str(count["ERROR"]),
        skipped=str(count["open"]),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        name = _CONTROL.sub("?", case.file.as_posix())
        entry = Xml.SubElement(
            suite, "testcase", classname="scenarios", name=name, time=f"{case.seconds:.3f}"
        )
        text = _CONTROL.sub("?", "\n".join(case.wrong))
        message = text.partition("\n")[0]
        if case.outcome == "FAIL":
            Xml.SubElement(entry, "failure", message=message).text = text
        elif case.outcome == "ERROR":
            Xml.SubElement(entry, "error", message=message).text = text
        elif case.outcome == "open":
            Xml.SubElement(entry, "skipped", message="no expectation")
        Xml.SubElement(entry, "system-out").text = _CONTROL.sub("?", case.answer)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"
