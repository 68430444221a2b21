"""What the comparisons with published runs share on the command line: bad input in one message."""

from __future__ import annotations

import sys
from collections.abc import Callable

from meshplan.scenarios.errors import InputError


def exit_code(action: Callable[[], int], *refusals: type[Exception]) -> int:
    """What ``action`` returns; 2, and a message, if input or output fails it.

    ``refusals`` are errors besides :class:`InputError` whose text says what to do.
    """
    told: tuple[type[Exception], ...] = (InputError, *refusals)
    try:
        return action()
    except told as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
    return 2
