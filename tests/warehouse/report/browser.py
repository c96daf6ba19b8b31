"""A real headless Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.requirements import require_tool

_BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")


class Browser:
    """One page at a time."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path) -> None:
        self.driver.get(page.as_uri())
        self.until(lambda: self.script("return document.documentElement.dataset.ready") == "true")

    def script(self, code: str, *arguments: object) -> object:
        return self.driver.execute_script(code, *arguments)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def element(self, css: str) -> WebElement:
        [element] = self.all(css)
        return element

    def text(self, css: str) -> str:
        """Text with what is folded away."""
        return "\n".join(str(e.get_attribute("textContent")) for e in self.all(css))

    def click(self, css: str) -> None:
        self.script("arguments[0].click()", self.element(css))

    def choose(self, name: str, value: str) -> None:
        """Set one of the viewer's filters."""
        code = (
            "const field = document.getElementById('filters').elements[arguments[0]];"
            "if (field.type === 'checkbox') field.checked = arguments[1] === 'on'; else field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        self.script(code, name, value)

    def until(self, condition: Callable[[], object]) -> None:
        WebDriverWait(self.driver, 30, poll_frequency=0.05).until(lambda _: condition())

    def complaints(self) -> list[str]:
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]  # selenium leaves it untyped


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with a driver of this machine, so that selenium looks for none on the network. Skips without one."""
    require_tool("chromium")
    assert _BROWSER is not None
    options = webdriver.ChromeOptions()
    options.binary_location = _BROWSER
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1366,900"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with started() as opened_browser:
        yield opened_browser
