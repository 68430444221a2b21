from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: A module may import from its own folder and from those before it.
ARROW = ("topologies", "scenarios", "constraints", "solver", "meshplan")

#: Slow to import, so only the commands that need them may do so.
HEAVY = ("networkx", "numpy", "ortools", "pandas")

#: A file longer than this holds more than one idea.
MAX_LINES = 450


def _modules(folder: str) -> list[Path]:
    """Python files of a folder, without those that ``meshplan/`` reaches through its links."""
    return sorted(
        path
        for path in (ROOT / folder).rglob("*.py")
        if not (folder == "meshplan" and path.relative_to(ROOT / folder).parts[0] in ARROW)
    )


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of all that a module imports, lazily or for type checkers, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def _against_the_arrow(folder: str, source: str) -> list[str]:
    """Imports in ``source``, a module of ``folder``, that it must not have: ``line: name``."""
    allowed = ARROW[: ARROW.index(folder) + 1]
    broken = []
    for line, name in _imported(ast.parse(source)):
        first, _, rest = name.partition(".")
        if first == "meshplan":
            inner = rest.partition(".")[0]
            target = inner if inner in ARROW else "meshplan"
            if target not in allowed:
                broken.append(f"{line}: {name}")
        elif first == "" or first in ARROW:  # relative, or by a second name
            broken.append(f"{line}: {name}")
    return broken


@pytest.mark.parametrize("folder", ARROW)
def test_imports_follow_the_arrow(folder: str) -> None:
    """Tests that no folder imports from one after it, not even lazily or for type checkers."""
    broken = [
        f"{path.relative_to(ROOT)}:{text}"
        for path in _modules(folder)
        for text in _against_the_arrow(folder, path.read_text("utf-8"))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("folder", "source", "is_legal"),
    [
        ("solver", "from meshplan.constraints.rule import Rule", True),
        ("solver", "from meshplan import constraints", True),
        ("solver", "import numpy", True),
        ("meshplan", "import meshplan", True),
        ("constraints", "from meshplan.solver.plan import Plan", False),
        ("constraints", "def lazily():\n    import meshplan.solver", False),
        ("constraints", "from meshplan import Plan", False),
        ("topologies", "import meshplan", False),
        ("solver", "from .plan import Plan", False),
        ("solver", "from . import plan", False),
        ("solver", "import constraints.rule", False),
    ],
)
def test_the_arrow_is_judged_rightly(folder: str, source: str, is_legal: bool) -> None:
    """Tests the judge of the test above: what it lets pass, and what it must catch."""
    assert (_against_the_arrow(folder, source) == []) is is_legal


def test_command_line_starts_light() -> None:
    """Tests that ``meshplan --help`` need not wait for the solver or the graph library."""
    code = (
        "import json, sys, meshplan, meshplan.cli\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


def test_files_are_short() -> None:
    """Tests that no file outgrows ``MAX_LINES`` lines."""
    paths = [path for folder in (*ARROW, "tests", "benchmarks") for path in _modules(folder)]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in paths
    }
    assert lengths, "the tree holds Python files"
    assert {name: count for name, count in lengths.items() if count > MAX_LINES} == {}
