"""Take the README's pictures of a report page: `python -m tools.pictures.picture REPORT.html`.

Writes two files next to this module: `report.png` is the page down to the chart of accuracy against latency, and
`trace.png` is the trace viewer with two methods side by side, at a sample in which both reject a draft and answer
correctly. REPORT.html is the page that `make demo` writes.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from tests.warehouse.report.browser import Browser, started

WIDTH = 1100
"""Width of the pictures in pixels; wide enough for two methods side by side, and still legible in a README."""
VIEWER_HEIGHT = 1240
"""Height of the browser window in pixels; trace.png shows the page from below the filters down to this height, which
includes the rejected drafts.
"""
COLORS = 256
"""Number of colors in the pictures' palette; with this many, they look the same as in full color and take half the
bytes.
"""


def take(page: Path, folder: Path) -> None:
    """Write both pictures into the folder."""
    with started() as browser:
        browser.driver.set_window_size(WIDTH, VIEWER_HEIGHT)
        browser.open(page.resolve())
        figure = browser.all("section#trade-off figure")[0]
        _save(browser, folder / "report.png", 0, _bottom(browser, figure) + 20)
        _open_fallback(browser)
        _save(browser, folder / "trace.png", _bottom(browser, browser.element("#filters")) + 8, VIEWER_HEIGHT)


def _open_fallback(browser: Browser) -> None:
    """Show the first sample in which both methods rejected drafts and answered correctly; unfold these drafts."""
    labels = [option.text for option in Select(browser.driver.find_element(By.NAME, "first")).options]
    first, second = (_many_in_flight(labels, method) for method in ("speccot", "specreason"))
    for name, value in (("first", first), ("second", second), ("fallback", "some"), ("verdict", "correct")):
        browser.choose(name, value)
    for place in range(len(browser.all("#list button"))):
        browser.script("document.querySelectorAll('#list button')[arguments[0]].click()", place)
        browser.until(lambda: len(browser.all(".pane")) == 2 and all(map(_verdict, _panes(browser))))
        if all("✔ correct" in text and "fallback" in text for text in _panes(browser)):
            break
    else:
        raise LookupError("no sample in which both methods rejected a draft and answered correctly")
    browser.script(
        "document.querySelectorAll('.pane details').forEach((fold) => {"
        "  fold.open = /candidate/.test(fold.querySelector('summary').textContent)"
        "    && fold.closest('[data-step]').textContent.includes('fallback') })"
    )


def _panes(browser: Browser) -> list[str]:
    return [pane.text for pane in browser.all(".pane")]


def _verdict(text: str) -> bool:
    return "✔" in text or "✘" in text


def _many_in_flight(labels: Sequence[str], method: str) -> str:
    """Return, as a string, the index of the last label of a run of the method with several samples in flight."""
    return str(max(i for i, label in enumerate(labels) if label.startswith(method) and "(1 in flight)" not in label))


def _bottom(browser: Browser, element: WebElement) -> int:
    code = "return Math.ceil(arguments[0].getBoundingClientRect().bottom + window.scrollY)"
    return int(str(browser.script(code, element)))


def _save(browser: Browser, path: Path, top: int, height: int) -> None:
    clip = {"x": 0, "y": top, "width": WIDTH, "height": height, "scale": 1}
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    picture = Image.open(BytesIO(b64decode(shot["data"]))).convert("RGB")
    picture.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(__file__).parent)
