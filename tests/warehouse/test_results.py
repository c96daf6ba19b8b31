"""The result of a run for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from tests.warehouse.conftest import Loaded
from warehouse.database import reader, rows
from warehouse.render import warnings
from warehouse.results import SCHEMA_VERSION, RunResults, results
from warehouse.statistics.intervals import Interval
from warehouse.summary import SpeedUp, summary

README = Path(__file__).parent.parent.parent / "jobs" / "README.md"


def test_every_number_is_that_of_the_summary(loaded: Loaded) -> None:
    for folder in (loaded.speculative, loaded.vanilla, loaded.limited):
        [run] = summary(loaded.database, [folder.path.name])
        found = json.loads(results(loaded.database, folder.path.name).to_json())
        assert found["schema_version"] == SCHEMA_VERSION == 1
        same = {f.name for f in fields(run)} & found.keys() - {
            "tokens",
            "codes",
            "speed_ups",
            "speed_ups_at_one",
            "params",
        }
        assert len(same) > 20
        assert {name: found[name] for name in same} == {name: getattr(run, name) for name in same}
        assert found["params"] == dict(run.params)
        assert found["tokens"] == {role: asdict(tokens) for role, tokens in run.tokens.items()}
        assert found["codes"] == [asdict(code) for code in run.codes]
        assert found["warnings"] == warnings(run)
        assert _interval(found, "pass_at_1") == replace(run.numbers["pass_at_1"].interval, degrees=None)
        assert _interval(found, "graded_pass_at_1") == run.result
        assert (found["planned"], found["finished"]) == (run.n * run.k, run.n * run.k - run.num_not_run)
        assert found["state"] == ("under way" if run.is_unfinished else "finished")


def test_a_speed_up_has_the_numbers_of_the_summary_and_its_interval_beside_it(loaded: Loaded) -> None:
    [run] = summary(loaded.database, [loaded.speculative.path.name])
    [found] = results(loaded.database, run.run_id).speed_ups
    renamed = {"speed_up_low_95": "low_95", "speed_up_high_95": "high_95"}
    assert SpeedUp(**{renamed.get(name, name): value for name, value in found.items()}) == run.speed_ups[0]


@pytest.mark.parametrize("metric", ["fallback_rate", "latency_seconds"])
def test_intervals_of_rates_and_times_are_those_of_the_table_of_estimates(loaded: Loaded, metric: str) -> None:
    run_id = loaded.speculative.path.name
    found = results(loaded.database, run_id).model_dump()
    with reader(loaded.database) as connection:
        [row] = rows(
            connection,
            "SELECT estimate, low_95 AS low, high_95 AS high, standard_error, interval_kind AS kind "
            "FROM counted_estimate WHERE run_id = $run_id AND metric = $metric",
            {"run_id": run_id, "metric": metric},
        )
    assert _interval(found, metric) == Interval(**row)
    assert found[metric] is not None
    assert found[f"{metric}_low_95"] < found[metric] < found[f"{metric}_high_95"]


def test_failed_samples_are_counted_as_the_verdicts_have_them(loaded: Loaded) -> None:
    found = results(loaded.database, loaded.speculative.path.name)
    assert found.failed == found.verdicts["error"] == 1
    assert sum(found.verdicts.values()) == found.planned == 6
    assert list(found.verdicts) == sorted(found.verdicts), "the same file is written however often it is made"


def test_a_run_without_any_sample_has_no_number_where_there_is_no_data(loaded: Loaded) -> None:
    found = results(loaded.database, loaded.limited.path.name)
    assert (found.finished, found.fallback_rate, found.latency_seconds, found.spent_tokens_per_sample) == (0,) + (
        None,
    ) * 3


def test_the_guide_names_every_key_in_order_and_its_schema_describes_each() -> None:
    section = README.read_text(encoding="utf-8").partition("### results.json")[2].partition("\n## ")[0]
    documented = [
        name.strip("`")
        for line in section.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].strip().split(", ")
    ]
    expanded = [key for name in documented for key in _expanded(name)]
    assert expanded == list(RunResults.model_fields)
    assert all(field.description for field in RunResults.model_fields.values())
    assert f"schema_version`, {SCHEMA_VERSION}" in section


def _expanded(name: str) -> list[str]:
    ends = ("", "_low_95", "_high_95", "_standard_error", "_interval")
    return [name.removesuffix(" …") + end for end in ends] if name.endswith(" …") else [name]


def _interval(found: dict[str, object], name: str) -> Interval | None:
    if found[name] is None:
        return None
    ends = {"low": "_low_95", "high": "_high_95", "standard_error": "_standard_error", "kind": "_interval"}
    return Interval(estimate=found[name], **{key: found[name + end] for key, end in ends.items()})  # type: ignore[arg-type]
