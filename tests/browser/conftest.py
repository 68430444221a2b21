"""A headless Chromium, and pages to look at in it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshplan.solver.compare.why import why
from meshplan.solver.report.html.page import html_page
from meshplan.solver.results import Alternative, Plan, Relaxation
from tests.meshplan.results import infeasible, plan, report, small_file
from tests.solver.small import toy_scenario

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--lang=en",
)  # fmt: skip
#: What a page may ask for: itself, and what it holds.
_OWN = ("file:", "data:", "about:", "chrome:")
_DRAWN = "return [...document.querySelectorAll('.plot')].every(place => 'drawn' in place.dataset)"


class Browser:
    """One window of a headless Chromium."""

    def __init__(self, chrome: Chrome) -> None:
        self.chrome = chrome

    def open(self, page: Path, *, width: int = 1100, scheme: str = "light") -> None:
        """Open a page and wait until its figures are drawn."""
        from selenium.webdriver.support.wait import WebDriverWait

        self._log("performance")
        self._log("browser")
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.media("screen", scheme)
        self.chrome.get(page.as_uri())
        WebDriverWait(self.chrome, 20).until(lambda chrome: chrome.execute_script(_DRAWN))

    def media(self, kind: str, scheme: str) -> None:
        """Show the page on screen or on paper, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        given = {"media": kind, "features": features}
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", given)

    def ask(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.chrome.execute_script(script, *arguments)

    def console(self) -> list[str]:
        """Messages of the console since the page was opened."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Addresses, other than of what the page is or holds, that it asked for."""
        events = [json.loads(one["message"])["message"] for one in self._log("performance")]
        asked = [
            str(event["params"]["request"]["url"])
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert asked, "the page itself is asked for"
        return [address for address in asked if not address.startswith(_OWN)]

    def axe(self) -> list[str]:
        """What axe-core finds wrong with the page: the rule, and where."""
        package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
        self.ask((Path(package.__file__).parent / "axe.min.js").read_text("utf-8"))
        found = self.chrome.execute_async_script(
            "const done = arguments[0]; axe.run().then(found => done(found.violations))"
        )
        return [f"{one['id']}: {[node['html'] for node in one['nodes']]}" for one in found]

    def _log(self, name: str) -> list[dict[str, Any]]:
        """Entries of a log of the browser since it was last asked for."""
        entries: list[dict[str, Any]] = self.chrome.get_log(name)  # type: ignore[no-untyped-call]
        return entries


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that all tests share."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no Chromium with its chromedriver on the path")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = selenium.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()


@dataclasses.dataclass(frozen=True)
class Shown:
    """A page, and the JSON of its result."""

    path: Path
    data: dict[str, Any]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """Pages of several kinds of result."""
    folder = tmp_path_factory.mktemp("pages")
    file = small_file(folder, "description: <b>bold</b> & <script>window.evil = 1</script>\n")
    results: dict[str, Any] = {
        "plan": _with_lists(plan(file, layout="tp=2,ep=2,pp=2,vpp=2")),
        "check": report(file, "tp=2,ep=2,pp=4"),
        "illegal": report(file, "tp=3"),
        "infeasible": infeasible(file),
        "why": why(toy_scenario(32), "tp=2,ep=2"),
    }
    shown = {}
    for name, result in results.items():
        path = folder / f"{name}.html"
        path.write_text(html_page(result), "utf-8")
        shown[name] = Shown(path, result.to_json())
    return shown


def _with_lists(found: Plan) -> Plan:
    """The plan with a front, alternatives and relaxations."""
    step_s = found.cost.time.step_us / 1e6
    others = tuple(
        Alternative(dataclasses.replace(found.layout, dp=dp), step_s * factor, gib, "other")
        for dp, factor, gib in ((2, 1.0, 9.0), (4, 1.1, 8.0), (8, 0.9, 12.0))
    )
    gain = Relaxation("memory", "1 GiB more", None, "optimal", step_s / 2, 1.0, found.layout)
    return dataclasses.replace(
        found,
        alternatives=others,
        pareto=others,
        relaxations=(gain,),
        advisories=(("dp-floor", "so and so"),),
        binding=("work: so and so",),
    )
