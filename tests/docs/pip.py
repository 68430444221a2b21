"""``pip`` of the examples: whether the extras that they install exist.

``python -m tests.docs.pip install 'meshplan[plot,report]' 'package==1'``
"""

from __future__ import annotations

import re
import sys
import tomllib

from tests.docs.blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_REQUIREMENT = re.compile(r"(?:meshplan|\.)\[([a-z,-]+)\]")


def main(arguments: list[str]) -> int:
    """1, with the reason, for what is no extra of this project."""
    command, *requirements = arguments
    wrong = [command] if command != "install" or not requirements else []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        extras = match[1].split(",") if match else ["not of this project: " + requirement]
        wrong += [extra for extra in extras if extra not in PROJECT["optional-dependencies"]]
    print(*wrong, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
