"""A headless Chromium that looks at one page after the other."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--lang=en",
)  # fmt: skip
#: What a page may ask for: itself, and what it holds.
_OWN = ("file:", "data:", "about:", "chrome:")
#: When all figures were drawn, in ms since the page was asked for; 0 for a page that has none.
_DRAWN = """
if (!document.querySelector('.plot')) return 0;
const marks = performance.getEntriesByName('figures-drawn');
return marks.length ? marks[0].startTime : null;
"""


class NoChromium(Exception):
    """There is no Chromium to be had; the text says what is missing."""


class Browser:
    """One window of a headless Chromium."""

    def __init__(self, chrome: Chrome) -> None:
        self.chrome = chrome

    def open(self, page: Path, *, width: int = 1100, scheme: str = "light") -> float:
        """Open a page and wait until its figures are drawn; how many seconds that took."""
        from selenium.webdriver.support.wait import WebDriverWait

        self._log("performance")
        self._log("browser")
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.media("screen", scheme)
        self.chrome.get(page.resolve().as_uri())
        wait = WebDriverWait(self.chrome, 30)
        wait.until(lambda chrome: chrome.execute_script(_DRAWN) is not None)
        return float(self.ask(_DRAWN)) / 1000

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

    def _log(self, name: str) -> list[dict[str, Any]]:
        """Entries of a log of the browser since it was last asked for."""
        entries: list[dict[str, Any]] = self.chrome.get_log(name)  # type: ignore[no-untyped-call]
        return entries


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own.

    Raises
    ------
    NoChromium
        If selenium, a Chromium or its driver is missing.
    """
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        raise NoChromium("selenium is not installed") from None
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        raise NoChromium("there is no Chromium with its chromedriver on the path")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield Browser(chrome)
        finally:
            chrome.quit()


__all__ = ["Browser", "NoChromium", "chromium"]
