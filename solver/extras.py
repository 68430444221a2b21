"""Libraries that only a part of the package needs: found, or a message that names the extra."""

from __future__ import annotations

from importlib.util import find_spec

from meshplan.scenarios.errors import InputError


def need(module: str, extra: str, purpose: str) -> None:
    """Make sure that an optional library is there.

    Raises
    ------
    InputError
        If it is not; the advice says how to install it.
    """
    if find_spec(module) is None:
        raise InputError(
            f"{purpose} needs {module}, which is not installed",
            advice=f"install it: pip install 'meshplan[{extra}]', or pip install {module}.",
        )


__all__ = ["need"]
