"""The page in a real browser: it opens, is clicked, filtered, and obeys no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from tests.warehouse.report.browser import Browser
from warehouse.loading.runs import load_run

Written = Callable[..., Path]


@pytest.fixture
def opened(browser: Browser, loaded: Loaded, written: Written) -> Iterator[Browser]:
    """Speculative and vanilla run; whatever a test does, the console stays empty."""
    browser.open(written(loaded.database, loaded.speculative.path.name, loaded.vanilla.path.name))
    yield browser
    assert browser.complaints() == []


def listed(browser: Browser) -> list[str]:
    return [str(e.get_attribute("textContent")) for e in browser.all("#list .what")]


def test_the_page_opens_with_charts_tables_and_a_trace_with_a_rejected_step(opened: Browser) -> None:
    assert len(opened.all("svg.chart")) == 4
    assert opened.text("table.results").count("speccot") == 1
    assert listed(opened) == ["toy/0 · 0", "toy/0 · 1", "toy/1 · 0", "toy/1 · 1", "toy/2 · 0"]
    assert opened.text('#list [aria-current="true"] .what') == "toy/1 · 0"
    authors = [e.get_attribute("class") for e in opened.all(".pane .step")]
    assert authors == ["step target", "step target", "step target"]
    assert "✘ rejected" in opened.text('[data-step="1"]')
    assert "2 + 2" in opened.text("#problem")


def test_runs_under_other_conditions_are_behind_tabs(browser: Browser, written: Written, tmp_path: Path) -> None:
    """Nothing is hidden in print."""
    under_load = replace(runs.SPEC, num_problems=2, dataset_size=9, concurrency=8)
    folders = [runs.create(tmp_path, spec) for spec in (under_load, runs.SPEC)]
    for folder in folders:
        runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)])
        load_run(folder, tmp_path / "w.duckdb")
    browser.open(written(tmp_path / "w.duckdb", *(folder.path.name for folder in folders)))
    tabs = browser.all("#speculation .tabs > div")
    assert ["Partial runs: 2 of 9 problems" in str(tab.get_attribute("textContent")) for tab in tabs] == [False, True]
    assert browser.text("#speculation label").split("\n") == [" 1 in flight", " 8 in flight"]
    drawn = "return [...document.querySelectorAll('#speculation .tabs > div')].map((tab) => tab.checkVisibility())"
    assert browser.script(drawn) == [True, False]
    browser.script("document.querySelectorAll('#speculation input')[1].click()")
    assert browser.script(drawn) == [False, True]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.script(drawn) == [True, True]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_every_input_has_a_label_every_table_headers_and_no_heading_skips_a_level(opened: Browser) -> None:
    unlabelled = (
        "return [...document.querySelectorAll('input, select')].filter((e) => !e.labels.length && !e.ariaLabel)"
        ".concat([...document.querySelectorAll('th:not([scope])')]).map((e) => e.outerHTML)"
    )
    assert opened.script(unlabelled) == []
    levels = opened.script("return [...document.querySelectorAll('h1, h2, h3, h4, h5')].map((e) => +e.tagName[1])")
    assert isinstance(levels, list)
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_step_shows_every_candidate_the_chosen_one_probabilities_tokens_and_times(opened: Browser) -> None:
    opened.all("#list button")[0].click()
    opened.until(lambda: "✔ accepted" in opened.text('[data-step="1"]'))
    step = opened.text('[data-step="1"]')
    for part in ("✔ accepted", "(62.5 %)", "-0.500", "(25.0 %)", "5.00 s", "80.0 %", "draftdraft2100 (50)11"):
        assert part in step


def test_verdict_fallback_length_and_words_filter_the_list(opened: Browser) -> None:
    for name, value, expected in (
        ("verdict", "truncated", ["toy/2 · 0"]),
        ("verdict", "", None),
        ("fallback", "some", ["toy/1 · 0", "toy/1 · 1"]),
        ("fallback", "none", None),
        ("fallback", "", None),
        ("longest", "17", []),
        ("longest", "", None),
        ("shortest", "18", None),
        ("shortest", "", None),
        ("search", "2 + 2", ["toy/1 · 0", "toy/1 · 1"]),
        ("search", "", ["toy/0 · 0", "toy/0 · 1", "toy/1 · 0", "toy/1 · 1", "toy/2 · 0"]),
        ("traced", "off", ["toy/0 · 0", "toy/0 · 1", "toy/1 · 0", "toy/1 · 1", "toy/2 · 0", "toy/2 · 1"]),
    ):
        opened.choose(name, value)
        if expected is not None:
            assert listed(opened) == expected, (name, value)


def test_a_click_opens_a_sample_and_keys_move_on(opened: Browser) -> None:
    opened.all("#list button")[2].click()
    opened.until(lambda: opened.text('#list [aria-current="true"] .what') == "toy/1 · 0")
    opened.script("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))")
    opened.until(lambda: opened.text('#list [aria-current="true"] .what') == "toy/1 · 1")
    opened.click("#previous")
    opened.until(lambda: opened.text('#list [aria-current="true"] .what') == "toy/1 · 0")


def test_filters_show_samples_not_run_and_samples_that_disagree(opened: Browser) -> None:
    opened.choose("traced", "off")
    opened.choose("verdict", "not_run")
    opened.until(lambda: "has not been run" in opened.text(".pane"))
    opened.choose("verdict", "")
    opened.choose("second", "1")
    opened.choose("between", "unlike")
    assert listed(opened) == ["toy/1 · 0", "toy/1 · 1", "toy/2 · 0", "toy/2 · 1"]


def test_a_hostile_trace_stays_text(browser: Browser, written: Written, hostile: tuple[Path, Any]) -> None:
    database, folder = hostile
    browser.open(written(database, folder.path.name))

    def is_open(place: int) -> bool:
        return browser.all("#list button")[place].get_attribute("aria-current") == "true"

    for place in range(6):
        browser.script("document.querySelectorAll('#list button')[arguments[0]].click()", place)
        browser.until(partial(is_open, place))
        browser.until(lambda: "</script><script>window.pwned = 1</script>" in browser.text(".pane"))
    assert browser.script("return window.pwned") is None
    assert browser.all("#panes img, #panes script, #panes a, .pane [onerror]") == []
    assert not {"\u202e", "\x1b"} & set(str(browser.script("return document.body.textContent")))
    text = browser.text(".pane")
    assert "\\u{202e}gnp.exe \\u{1b}[2J" in text
    assert "{{ 7*7 }}" in text
    browser.choose("verdict", "not_graded")
    browser.until(lambda: "not_graded" in browser.text(".pane .badge"))
    assert listed(browser) == ["toy/0 · 1", "toy/1 · 1"]
    assert browser.complaints() == []


def test_decisions_by_other_means_than_verdicts_are_shown_counted_and_filtered(
    browser: Browser, written: Written, decided: tuple[Path, str]
) -> None:
    database, run_id = decided
    browser.open(written(database, run_id))
    assert "50.0% of 6" in browser.text("#speculation").replace("\u202f", "").replace(" %", "%")
    assert "✘ draft rejected: entropy 0.75 > 0.5" in browser.text('[data-step="1"]')
    browser.choose("fallback", "half")
    assert len(listed(browser)) == 3
    browser.choose("fallback", "none")
    browser.until(lambda: "accepted: </script>" in browser.text('[data-step="1"]'))
    assert browser.script("return window.pwned") is None
    assert len(listed(browser)) == 3
    assert browser.complaints() == []


def test_formulas_are_drawn_and_money_is_not(browser: Browser, written: Written, hostile: tuple[Path, Any]) -> None:
    database, folder = hostile
    browser.open(written(database, folder.path.name))
    drawn = browser.script(
        "return [...document.querySelectorAll('[data-step=\"1\"] > .prose .formula')]"
        ".filter((f) => f.querySelector('.katex')).map((f) => f.title)"
    )
    assert isinstance(drawn, list)
    assert {"$x^2 + y_1$", "\\(\\frac{1}{2}\\)", "\\[\\sum_{i=1}^n i\\]", "\\boxed{\\frac{3}{4}}"} <= set(drawn)
    assert "Costs $5 and $6." in browser.text('[data-step="1"] > .prose')
    loaded = "document.fonts.ready.then(() => [...document.fonts].some(f => f.status === 'loaded'))"
    assert browser.script(f"return {loaded}") is True
    browser.choose("math", "off")
    browser.until(lambda: not browser.all(".pane .katex"))
    assert "\\frac{1}{2}" in browser.text('[data-step="1"] > .prose')
    assert browser.complaints() == []


def test_the_address_names_the_trace_and_back_and_forward_follow_it(opened: Browser) -> None:
    def is_shown(name: str) -> bool:
        return opened.text('#list [aria-current="true"] .what') == name

    opened.all("#list button")[1].click()
    opened.until(lambda: is_shown("toy/0 · 1"))
    address = str(opened.script("return location.href"))
    assert "trace=toy-" in address
    assert "problem=toy%2F0&sample=1" in address
    opened.choose("second", "1")
    opened.click("#next")
    opened.until(lambda: is_shown("toy/1 · 0"))
    beside = str(opened.script("return location.href"))
    opened.driver.back()
    opened.until(lambda: is_shown("toy/0 · 1"))
    opened.driver.forward()
    opened.until(lambda: is_shown("toy/1 · 0") and len(opened.all(".pane")) == 2)
    for link, name, panes in ((address, "toy/0 · 1", 1), (beside, "toy/1 · 0", 2)):
        opened.driver.get("about:blank")
        opened.driver.get(link)
        opened.until(lambda: opened.script("return document.documentElement.dataset.ready") == "true")
        assert (is_shown(name), len(opened.all(".pane"))) == (True, panes)


def test_the_text_of_traces_is_searched_and_the_place_is_shown(opened: Browser) -> None:
    opened.choose("words", "perhaps 3")
    opened.until(lambda: "in 5 of the 5 traces of speccot" in opened.text("#searched"))
    assert "…" not in opened.text("#list .snippet")
    assert opened.text("#list .snippet").count("Perhaps 3.") == 5
    marked = "return [...CSS.highlights.get('found')].map(String)"
    opened.until(lambda: opened.script(marked) == ["Perhaps 3"])
    opened.choose("words", "draft prompt")
    opened.until(lambda: "in 0 of the 5 traces" in opened.text("#searched"))
    opened.choose("words", "too long")
    opened.until(lambda: listed(opened) == ["toy/1 · 1"])
