"""The result of a run for programs: results.json."""

from __future__ import annotations

import json

from tests.warehouse.conftest import Loaded
from warehouse.database import reader, rows
from warehouse.report.summary import SCHEMA_VERSION, RunSummary, summary


def test_the_file_is_the_summary(loaded: Loaded) -> None:
    for folder in (loaded.speculative, loaded.vanilla, loaded.limited):
        [run] = summary(loaded.database, [folder.path.name])
        found = json.loads(run.to_json())
        assert found.keys() == RunSummary.model_fields.keys()
        assert RunSummary.model_validate(found) == run
        assert found["schema_version"] == SCHEMA_VERSION == 2
        assert (run.planned, run.finished) == (run.n * run.k, run.n * run.k - run.num_not_run)
        assert found["measures"]["pass_at_1"]["value"] == run.pass_at_1
        assert (run.state == "finished") == (run.num_not_run + run.num_ungraded == 0)


def test_every_measure_of_the_run_is_there_under_its_name(loaded: Loaded) -> None:
    """What is added to the registry needs no edit here."""
    [run] = summary(loaded.database, [loaded.speculative.path.name])
    with reader(loaded.database) as connection:
        found = rows(
            connection,
            "FROM counted_estimate WHERE run_id = $run_id AND coalesce(role, group_kind, baseline_run_id) IS NULL "
            "AND metric NOT IN ('pass_at_k', 'maj_at_k')",
            {"run_id": run.run_id},
        )
    assert (
        run.measures.keys() == {row["metric"] for row in found} >= {"fallback_rate", "latency_seconds", "draft_steps"}
    )
    for row in found:
        number = run.measures[row["metric"]]
        assert (number.value, number.low_95, number.high_95) == (row["estimate"], row["low_95"], row["high_95"])
        assert (number.n, number.unit, number.interval) == (row["n"], row["unit"], row["interval_kind"])
    [pair] = run.against
    assert pair.baseline_run_id == loaded.vanilla.path.name
    assert pair.measures.keys() >= {"speed_up", "ratio_of_means", "rate_ratio", "chain_length_ratio"}
    assert run.by_role["draft"]["emitted_tokens"].value < run.measures["emitted_tokens"].value
