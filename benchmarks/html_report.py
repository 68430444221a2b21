"""HTML reports: how long they take to write and to open in a headless Chromium, and their size.

    python benchmarks/html_report.py [SCENARIO ...]

For each scenario the layout that its pins give is judged, and the page of that is written, then
opened several times in a fresh Chromium.  "Open" is from the request to the last figure drawn.
Aims: less than 2 MB, open in less than 2 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import meshplan
from benchmarks.chromium import Browser, NoChromium, chromium
from benchmarks.command_line import exit_code

_SEED = Path(__file__).parent.parent / "scenarios" / "seed"
#: A pipeline of 8 with 4 chunks, one of 16, and none.
_FILES = (
    "dsv3-h100-128k-published.yaml",
    "dsv3-h100-4k-published.yaml",
    "qwen3-235b-gb200-4k-published.yaml",
)
_TIMES = 5


def main(arguments: list[str] | None = None) -> int:
    """Measure each page, and print a row of Markdown for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="SCENARIO", help="some of ours by default")
    given = parser.parse_args(arguments)
    files = given.files or [_SEED / name for name in _FILES]
    return exit_code(lambda: _measure(files), NoChromium)


def _measure(files: list[str | Path]) -> int:
    print("| scenario | layout | MB | write, CPU s | open, s |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for file in files:
            print(_row(file, Path(folder) / "page.html", browser))
    return 0


def _row(file: str | Path, page: Path, browser: Browser) -> str:
    report = meshplan.check(file)
    begin = time.process_time()
    text = report.to_html()
    written = time.process_time() - begin
    page.write_text(text, "utf-8")
    opened = statistics.median(browser.open(page) for _ in range(_TIMES))
    layout = report.layout
    shape = f"pp {layout.pp}, vpp {layout.vpp}"
    size = page.stat().st_size / 1e6
    return f"| {report.problem.name} | {shape} | {size:.2f} | {written:.1f} | {opened:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
