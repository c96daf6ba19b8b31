"""What of a run's machine makes its times comparable with another's, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.shared import with_settings
from tests.warehouse import cells
from tests.warehouse.test_compare import load
from warehouse.comparison.manifests import differences, latency_mismatches, read_manifests
from warehouse.database import reader
from warehouse.suites.measured import measure

SHARED = with_settings(with_settings(cells.SPEC, "draft", tensor_parallel=1), "target", tensor_parallel=4)
OWN_CARD = with_settings(with_settings(SHARED, "draft", gpus=(0,)), "target", gpus=(1, 2, 3, 4))
ALONE = with_settings(cells.VANILLA, "target", tensor_parallel=4)


def ran_on(where: Path, spec: RunSpec, latency: float = 10.0, **attempt: Any) -> RunFolder:
    """A finished run whose attempt's record has these values."""
    folder = cells.finished(where, spec, [2] * 6, latency=latency)
    file = folder.trace_files_dir / "a0.parquet"
    recorded = json.loads(trace_files.read_metadata(file)["attempt"]) | attempt
    rows = trace_files.read_rows(file)
    trace_files.write_table(file, trace_files.TRACES, rows, {"attempt": json.dumps(recorded)})
    return RunFolder(folder.path)


def mismatches(where: Path, *run_ids: str) -> list[str]:
    with reader(where / "w.duckdb") as connection:
        first, second = (read_manifests(connection, [run_id])[run_id] for run_id in run_ids)
    return latency_mismatches(first, second)


def test_a_draft_on_a_gpu_of_its_own_leaves_the_target_comparable_with_the_target_alone(tmp_path: Path) -> None:
    """As in SCoT: one GPU for the draft and four for the target, against four for the target."""
    own, base = ran_on(tmp_path, OWN_CARD, latency=5.0, num_devices=5), ran_on(tmp_path, ALONE, num_devices=4)
    pair, alone = load(tmp_path, own, base)
    assert mismatches(tmp_path, pair, alone) == []
    with reader(tmp_path / "w.duckdb") as connection:
        found = differences(list(read_manifests(connection, [pair, alone]).values()))
        assert {one.matter for one in found if one.name.startswith(("devices", "GPUs"))} == {"note"}, "still named"
        assert connection.execute("FROM speed_up SELECT speed_up").fetchall() == [(2.0,)]
        ratio = measure(connection, "ratio_of_means", pair, alone)
        assert ratio is not None
        assert ratio.estimate == 2.0


def test_other_cards_and_engines_that_share_cards_are_not_alike(tmp_path: Path) -> None:
    own, shared, slower = load(
        tmp_path,
        ran_on(tmp_path, OWN_CARD, num_devices=5),
        ran_on(tmp_path, SHARED, num_devices=4),
        ran_on(tmp_path, ALONE, num_devices=4, device="NVIDIA L4"),
    )
    unlike = [mismatches(tmp_path, *pair) for pair in ((own, shared), (shared, slower))]
    assert [[line.partition(":")[0] for line in lines] for lines in unlike] == [["placement"], ["devices"]]
    with reader(tmp_path / "w.duckdb") as connection:
        assert connection.execute("FROM speed_up").fetchall() == []
        assert measure(connection, "ratio_of_means", shared, slower) is None


def test_runs_from_before_there_was_a_choice_asked_for_log_probabilities(tmp_path: Path) -> None:
    """Their workers' loop took longer for it: NULL of an old run is not NULL of a new one."""
    before = {"target": {"kv_tokens": 1000}}
    now = {"target": {"kv_tokens": 1000, "mean_logprobs": False}}
    did = replace(ALONE, tag="asked", engine=replace(ALONE.engine, logprobs=True))
    old, new, asked = load(
        tmp_path,
        ran_on(tmp_path, replace(ALONE, tag="old"), engines=before),
        ran_on(tmp_path, replace(ALONE, tag="new"), engines=now),
        ran_on(tmp_path, did, engines={"target": {"mean_logprobs": True}}),
    )
    assert len(mismatches(tmp_path, old, new)) == 1
    assert mismatches(tmp_path, old, asked) == []
