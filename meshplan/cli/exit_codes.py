"""Exit codes, the same for all commands, and the variable that shows tracebacks."""

from __future__ import annotations

#: Answered as hoped: solved, the checked layout is good, all expectations met.
DONE = 0
#: An expectation failed, or a checked layout is illegal or does not fit.
NOT_AS_HOPED = 1
#: Bad input; click uses the same code for bad options.
BAD_INPUT = 2
#: Proved that no layout exists.
INFEASIBLE = 3
#: A limit or Ctrl-C stopped the search before the proof was closed.
STOPPED = 4
#: An error of meshplan itself (``EX_SOFTWARE`` of sysexits.h).
OUR_FAULT = 70

#: With this environment variable set to 1, our own faults keep their traceback.
DEBUG_VARIABLE = "MESHPLAN_DEBUG"
