"""The verdict on a night as JUnit XML."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from junitparser import Failure, JUnitXml, Skipped, TestCase

from tests.warehouse.test_regress import (
    FIRST,
    batch,
    four_nights,
    last,
    loaded_nights,
    night,
    nightly,
    regress,
    usual_nights,
    worse,
)
from warehouse.nightly import junit

__all__ = ["four_nights", "loaded_nights"]


def cases(text: str) -> list[TestCase]:
    [suite] = JUnitXml.fromstring(text)
    return list(suite)


def test_every_cell_and_every_metric_of_it_is_a_case_with_the_verdict_that_the_json_has(four_nights: Path) -> None:
    nightly(four_nights, 4, [1, 0, 1, 2, 0, 1, 2, 1, 0, 1, 1, 2])
    nightly(four_nights, 4, [1, 1, 1, 2, 0, 1, 1, 1, 0, 1, 1, 2], seed=1)
    found = json.loads(regress(four_nights, "--json").stdout)
    result = regress(four_nights, "--format", "junit")
    assert result.exit_code == found["exit_code"] == 1
    parsed = cases(result.stdout)
    expected = [
        (cell["cell"], name)
        for cell in found["cells"]
        for name in ("verdict", *(metric["name"] for metric in cell["metrics"]))
    ]
    assert [(case.classname, case.name) for case in parsed] == expected
    assert len(expected) > 3
    [failure] = parsed[0].result
    assert isinstance(failure, Failure)
    assert failure.text == "\n".join(found["cells"][0]["reasons"])
    assert failure.message == "; ".join(found["cells"][0]["reasons"])
    assert all(case.is_passed for case in parsed[1:])
    root = ElementTree.fromstring(result.stdout)
    counts = {name: root.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": str(len(expected)), "failures": "1", "errors": "0", "skipped": "0"}
    properties = {p.attrib["name"]: p.attrib["value"] for p in root.iter("property")}
    assert properties == {"night": found["night"], "verdict": "FAIL", "exit_code": "1"}


def test_a_file_that_ends_in_xml_is_junit(four_nights: Path) -> None:
    file = four_nights / "night.xml"
    assert regress(four_nights, "-o", str(file)).exit_code == 0
    assert all(case.is_passed for case in cases(file.read_text(encoding="utf-8")))


def test_what_could_not_be_judged_is_skipped_with_the_reason() -> None:
    verdict, cell = last(usual_nights(2))
    [case] = cases(junit.of_verdict(verdict))
    [skipped] = case.result
    assert isinstance(skipped, Skipped)
    assert (skipped.message,) == cell.reasons == ("1 of 3 nights of baseline",)


def test_a_warning_passes_and_its_reason_is_output() -> None:
    rng = np.random.default_rng(4)
    better = np.clip(1 - worse(0) * 0.5, 0, 1)
    verdict, cell = last([*usual_nights(8), [night(8, batch(rng, better), reruns=(batch(rng, better),))]])
    [case] = cases(junit.of_verdict(verdict))
    assert (verdict.verdict, case.is_passed) == ("WARN", True)
    assert f"WARN: {cell.reasons[0]}" in str(case.system_out)


@pytest.mark.parametrize("cell", ['a <b> & "c"', "bell \a, escape \x1b[31m and ]]>"])
def test_no_name_of_a_cell_breaks_the_document(cell: str) -> None:
    verdict, _ = last(usual_nights(5, cell=cell))
    [case] = cases(junit.of_verdict(verdict))
    assert case.classname == cell.replace("\a", "\\x07").replace("\x1b", "\\x1b")


def test_a_night_without_a_verdict_is_an_error() -> None:
    [case] = cases(junit.of_no_verdict(FIRST, "nothing ran in the night of 2026-01-01", 2))
    assert (case.is_error, case.result[0].message) == (True, "nothing ran in the night of 2026-01-01")
    assert case.classname == f"night of {date(2026, 1, 1)}"
