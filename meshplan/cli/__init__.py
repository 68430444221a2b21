"""The command line: one module a command; each imports what is heavy when it runs.

==============  ===========================================================
``app``         the group of commands, faults in words, exit codes
``solve``       ``meshplan solve``
``check``       ``meshplan check``
``limits``      ``meshplan limits``
``why``         ``meshplan why``
``diff``        ``meshplan diff``
``memory``      ``meshplan memory``
``flops``       ``meshplan flops``
``export``      ``meshplan export``
``calibrate``   ``meshplan calibrate``
``test``        ``meshplan test``; ``case_lines`` helps it, ``meshplan.suite`` does the work
``sweep``       ``meshplan sweep``; ``sweep_table`` helps it, ``meshplan.sweeps`` does the work
``imports``     ``meshplan import args``, ``model`` and ``runs``; ``part_output`` helps them
``rules``       ``meshplan rules`` and ``meshplan explain``
``models``      ``meshplan models``
``place``       ``meshplan place``
``clusters``    ``meshplan clusters``
``schema``      ``meshplan schema``
``options``     options that several commands take
``output``      results as JSON; the terminal
``whole_file``  files that are written whole or not at all, and never over an input
``progress``    the line that shows a running search
==============  ===========================================================
"""

from __future__ import annotations

from typing import Any

from meshplan.cli.app import application


def main(**settings: Any) -> None:
    """Run the command line and exit with its code; ``settings`` go to click (``prog_name``)."""
    application(**settings)


__all__ = ["main"]
