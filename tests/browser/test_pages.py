"""Pages as a person meets them: in a real browser, on a desk, on a phone, in the dark, on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from benchmarks.chromium import Browser
    from tests.browser.conftest import Shown

pytestmark = pytest.mark.browser

NAMES = ("plan", "check", "illegal", "infeasible", "diagnosis", "why")
#: Least contrast of text, and of parts of a figure, with what is behind: WCAG 2.2, AA.
TEXT, PARTS = 4.5, 3.0


@pytest.fixture(params=NAMES)
def shown(request: pytest.FixtureRequest, pages: dict[str, Shown]) -> Shown:
    """Each of the pages."""
    return pages[request.param]


def _view(browser: Browser, figure: str) -> list[dict[str, Any]]:
    """The rows that a figure has drawn."""
    found: list[dict[str, Any]] = browser.ask(
        "const view = document.querySelector(`[data-spec='${arguments[0]}']`).view;"
        "return view.data('rows').map(row => ({...row}))",
        figure,
    )
    return found


def test_page_is_quiet_and_alone(browser: Browser, shown: Shown) -> None:
    """Tests that nothing is said on the console, and that nothing is asked of any network."""
    browser.open(shown.path)
    assert browser.console() == []
    assert browser.requests() == []


def test_text_of_users_is_shown_as_text(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests that markup in a description is read, not run."""
    browser.open(pages["check"].path)
    text = browser.ask("return document.querySelector('.description').textContent")
    assert text == "<b>bold</b> & <script>window.evil = 1</script>"
    assert browser.ask("return window.evil === undefined")


@pytest.mark.parametrize("width", [320, 768])
def test_nothing_is_wider_than_the_window(browser: Browser, shown: Shown, width: int) -> None:
    """Tests that no page needs a sideways scroll, tables opened, and that figures keep within."""
    browser.open(shown.path, width=width)
    browser.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    assert browser.ask(
        "return [...document.querySelectorAll('.plot svg')]"
        ".every(svg => svg.getBoundingClientRect().right <= innerWidth)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(browser: Browser, shown: Shown, scheme: str) -> None:
    """Tests that axe-core, whose rules are those of WCAG, finds nothing, tables opened."""
    browser.open(shown.path, scheme=scheme)
    browser.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    assert _axe(browser) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stand_out(browser: Browser, pages: dict[str, Shown], scheme: str) -> None:
    """Tests each colour that text and figures use against the page and the cards behind it."""
    browser.open(pages["plan"].path, scheme=scheme)
    text = ("text", "muted", "link", "good", "warn", "bad")
    for name in text:
        for behind in ("page", "card"):
            assert _contrast(browser, name, behind) >= TEXT, (name, behind)
    for place in range(1, 7):
        assert _contrast(browser, f"s{place}", "page") >= PARTS, place
    for place in (1, 2):  # slots have labels in the colour of the page
        assert _contrast(browser, "page", f"s{place}") >= TEXT, place


def test_paper_is_white(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests that a page printed from a dark browser is dark on white."""
    browser.open(pages["plan"].path, scheme="dark")
    assert _luminance(browser, "page") < 0.1
    browser.media("print", "dark")
    assert _luminance(browser, "page") == 1.0
    assert _contrast(browser, "text", "page") > 10


def test_tables_open_by_keyboard(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests that Tab reaches the table of the first figure, and that Enter opens it."""
    from selenium.webdriver.common.keys import Keys

    browser.open(pages["check"].path)
    for _ in range(40):
        browser.chrome.switch_to.active_element.send_keys(Keys.TAB)
        if browser.ask("return document.activeElement.tagName") == "SUMMARY":
            break
    assert browser.ask("return document.activeElement.textContent").startswith("Table: Memory")
    assert browser.ask("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.chrome.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.ask("return document.activeElement.parentElement.open")


def test_figures_have_names(browser: Browser, shown: Shown) -> None:
    """Tests that a screen reader is told what each figure is, in the words of its caption."""
    browser.open(shown.path)
    for caption, name in browser.ask(
        "return [...document.querySelectorAll('figure')].map(figure => ["
        "figure.querySelector('figcaption').textContent,"
        "figure.querySelector('[role=graphics-document]').getAttribute('aria-label')])"
    ):
        assert name == caption


def test_memory_bars_are_the_json(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests, in pixels, that bars are as long as their GiB against the capacity's line."""
    data = pages["check"].data["memory"]
    browser.open(pages["check"].path)
    bars = browser.ask(_BOXES, "memory-memory", ".mark-rect path")
    ((line, _, _),) = browser.ask(_BOXES, "memory-memory", ".role-mark.mark-rule line")
    left = min(bar[0] for bar in bars)
    scale = (line - left) / data["capacity_gib"]
    rows: dict[float, list[list[float]]] = {}
    for bar in bars:
        rows.setdefault(bar[2], []).append(bar)
    assert len(rows) == len(data["stages"]) == 4
    for top, stage in zip(sorted(rows), data["stages"], strict=True):
        end = max(bar[1] for bar in rows[top])
        assert end - left == pytest.approx(stage["peak_gib"] * scale, abs=2), stage["rank"]


def test_time_bars_are_the_json(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests, in pixels, that bars are as long as their parts of the step."""
    time = pages["check"].data["time"]
    browser.open(pages["check"].path)
    rows = _view(browser, "time-time")
    bars = browser.ask(_BOXES, "time-time", ".mark-rect path")
    assert len(bars) == len(rows)
    scale = (bars[0][1] - bars[0][0]) / max(time["breakdown"].values())
    for row, bar in zip(rows, bars, strict=True):
        if row["part"] != "everything else":
            part = time["breakdown"][row["part"].replace(" ", "_")]
            assert bar[1] - bar[0] == pytest.approx(part * scale, abs=2), row["part"]


def test_drawn_rows_are_the_json(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests slots, schedule, front, relaxations and terms: what the browser holds is the JSON."""
    data = pages["plan"].data
    browser.open(pages["plan"].path)
    slots = _view(browser, "pipeline-slots")
    assert [row["seconds"] for row in slots] == data["pipeline"]["slot_s"]
    schedule = _view(browser, "pipeline-schedule")
    assert schedule[0]["end"] == pytest.approx(data["pipeline"]["slot_s"][0] / 3, abs=1e-6)
    assert len(browser.ask(_BOXES, "pipeline-schedule", ".mark-rect path")) == len(schedule)
    front = {(one["step_s"], one["peak_gib"], one["layout"]["dp"]) for one in data["pareto"]}
    assert {(row["step"], row["gib"], row["dp"]) for row in _view(browser, "pareto-pareto")} == (
        front
    )
    assert [row["gain"] for row in _view(browser, "relaxations-relaxations")] == [1.0]
    browser.open(pages["why"].path)
    terms = {row["part"]: row["difference"] for row in _view(browser, "terms-terms")}
    assert terms["step"] == pages["why"].data["comparison"]["difference_s"]


def test_hover_shows_the_figure(browser: Browser, pages: dict[str, Shown]) -> None:
    """Tests that a bar under the pointer says its part and its GiB."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    browser.open(pages["check"].path)
    place = "[data-spec='memory-memory'] .mark-rect path"
    bar = browser.chrome.find_element(By.CSS_SELECTOR, place)
    ActionChains(browser.chrome).move_to_element(bar).perform()
    told = browser.ask("return document.getElementById('vg-tooltip-element').innerText")
    weights = pages["check"].data["memory"]["stages"][0]["weights_gib"]
    assert "weights" in told and f"{weights:g}" in told


def _axe(browser: Browser) -> list[str]:
    """What axe-core finds wrong with the page: the rule, and where."""
    package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    browser.ask((Path(package.__file__).parent / "axe.min.js").read_text("utf-8"))
    found = browser.chrome.execute_async_script(
        "const done = arguments[0]; axe.run().then(found => done(found.violations))"
    )
    return [f"{one['id']}: {[node['html'] for node in one['nodes']]}" for one in found]


#: Left, right and top of each mark of a figure.
_BOXES = """
const place = document.querySelector(`[data-spec='${arguments[0]}']`);
return [...place.querySelectorAll(arguments[1])].map(mark => {
  const box = mark.getBoundingClientRect();
  return [box.left, box.right, Math.round(box.top)];
});
"""


def _luminance(browser: Browser, name: str) -> float:
    """Relative luminance of a colour of the page, as WCAG has it."""
    text = browser.ask(
        "const probe = document.createElement('p'); document.body.append(probe);"
        "probe.style.color = `var(--${arguments[0]})`;"
        "const color = getComputedStyle(probe).color; probe.remove(); return color",
        name,
    )
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (int(part) / 255 for part in re.findall(r"\d+", text)[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(browser: Browser, name: str, behind: str) -> float:
    """Contrast of two colours of the page, as WCAG has it."""
    dark, light = sorted((_luminance(browser, name), _luminance(browser, behind)))
    return (light + 0.05) / (dark + 0.05)
