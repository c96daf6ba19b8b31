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
from warehouse.comparison.manifests import differences, latency_mismatches, read_manifests
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.suites.measured import measure

SHARED = with_settings(with_settings(cells.SPEC, "draft", tensor_parallel=1), "target", tensor_parallel=4)
OWN_CARD = with_settings(with_settings(SHARED, "draft", gpus=(0,)), "target", gpus=(1, 2, 3, 4))
ALONE = with_settings(cells.VANILLA, "target", tensor_parallel=4)


def ran_on(where: Path, spec: RunSpec, latency: float = 10.0, **attempt: Any) -> str:
    """Load a finished run whose attempt's record has these values; return its id."""
    folder = cells.finished(where, spec, [2] * 6, latency=latency)
    file = folder.trace_files_dir / "a0.parquet"
    recorded = json.loads(trace_files.read_metadata(file)["attempt"]) | attempt
    rows = trace_files.read_rows(file)
    trace_files.write_table(file, trace_files.TRACES, rows, {"attempt": json.dumps(recorded)})
    load_run(RunFolder(folder.path), where / "w.duckdb")
    return folder.path.name


def mismatches(where: Path, *run_ids: str) -> list[str]:
    with reader(where / "w.duckdb") as connection:
        first, second = (read_manifests(connection, [run_id])[run_id] for run_id in run_ids)
    return latency_mismatches(first, second)


def test_a_draft_on_a_gpu_of_its_own_leaves_the_target_comparable_with_the_target_alone(tmp_path: Path) -> None:
    """As in SCoT: one GPU for the draft and four for the target, against four for the target."""
    pair = ran_on(tmp_path, OWN_CARD, latency=5.0, num_devices=5)
    alone = ran_on(tmp_path, ALONE, latency=10.0, num_devices=4)
    assert mismatches(tmp_path, pair, alone) == []
    with reader(tmp_path / "w.duckdb") as connection:
        manifests = read_manifests(connection, [pair, alone])
        matters = {d.name: d.matter for d in differences(list(manifests.values()))}
        assert matters["devices"] == matters["GPUs of the target"] == "note", "still named"
        assert connection.execute("SELECT speed_up FROM speed_up").fetchall() == [(2.0,)]
        ratio = measure(connection, "ratio_of_means", pair, alone)
        assert ratio is not None
        assert ratio.estimate == 2.0


def test_other_cards_and_engines_that_share_cards_are_not_alike(tmp_path: Path) -> None:
    own = ran_on(tmp_path, OWN_CARD, num_devices=5)
    shared = ran_on(tmp_path, SHARED, num_devices=4)
    assert mismatches(tmp_path, own, shared) == ["placement: each on its own GPUs against on the same GPUs"]
    slower = ran_on(tmp_path, ALONE, num_devices=4, device="NVIDIA L4")
    assert mismatches(tmp_path, shared, slower) == ["devices: 4 × NVIDIA H100 against 4 × NVIDIA L4"]
    with reader(tmp_path / "w.duckdb") as connection:
        assert connection.execute("SELECT * FROM speed_up").fetchall() == []
        assert measure(connection, "ratio_of_means", shared, slower) is None


def test_runs_from_before_there_was_a_choice_asked_for_log_probabilities(tmp_path: Path) -> None:
    """Their workers' loop took longer for it: NULL of an old run is not NULL of a new one."""
    before = {"target": {"kv_tokens": 1000}}
    now = {"target": {"kv_tokens": 1000, "mean_logprobs": False}}
    old = ran_on(tmp_path, replace(ALONE, tag="old"), engines=before)
    new = ran_on(tmp_path, replace(ALONE, tag="new"), engines=now)
    asked = ran_on(
        tmp_path,
        replace(ALONE, tag="asked", engine=replace(ALONE.engine, logprobs=True)),
        engines={"target": {"mean_logprobs": True}},
    )
    refused = replace(ALONE, tag="refused", engine=replace(ALONE.engine, logprobs=False))
    not_asked = ran_on(tmp_path, refused, engines=now)
    assert mismatches(tmp_path, old, new) == ["log-probabilities asked for: yes against no"]
    assert mismatches(tmp_path, old, asked) == []
    assert mismatches(tmp_path, new, not_asked) == [], "--no-logprobs is what the default does"


def test_settings_of_each_model_are_named_and_keep_a_baseline_with_others_away(tmp_path: Path) -> None:
    plain = ran_on(tmp_path, SHARED)
    alone = ran_on(tmp_path, ALONE, num_devices=4)
    own = {"template": {"enable_thinking": False}, "thinking_tags": "none", "engine": {"kv_cache_dtype": "fp8"}}
    other = with_settings(with_settings(SHARED, "draft", top_k=20), "target", **own)
    changed = ran_on(tmp_path, other)
    with reader(tmp_path / "w.duckdb") as connection:
        manifests = read_manifests(connection, [plain, changed])
        found = {d.name: d.values[changed] for d in differences(list(manifests.values()))}
        compared = connection.execute("SELECT run_id, baseline_run_id FROM comparable_baseline").fetchall()
    assert found["sampling of the draft"] == '{"top_k": 20}'
    assert found["template variables of the target"] == '{"enable_thinking": false}'
    assert found["thinking tags of the target"] == "none"
    assert found["engine arguments of the target"] == '{"kv_cache_dtype": "fp8"}'
    assert manifests[plain].values["thinking tags of the target"] == "of the template"
    assert compared == [(plain, alone)]


def test_the_server_of_a_model_is_compared_among_runs_that_use_the_model(tmp_path: Path) -> None:
    def served(spec: RunSpec) -> RunSpec:
        draft, target = (model and replace(model, server="vllm") for model in (spec.draft, spec.target))
        return replace(spec, engine=replace(ALONE.engine, kind="served"), draft=draft, target=target)

    one = {"target server": "vllm 0.32.0"}
    both = {"draft server": "vllm 0.32.0", **one}
    here = ran_on(tmp_path, SHARED, versions={})
    pair = ran_on(tmp_path, served(SHARED), versions=both, device="unknown server")
    alone = ran_on(tmp_path, served(ALONE), versions=one, device="unknown server")
    newer = ran_on(tmp_path, replace(served(ALONE), tag="new"), versions={"target server": "vllm 0.33.0"})

    def named(*run_ids: str) -> dict[str, list[str]]:
        with reader(tmp_path / "w.duckdb") as connection:
            manifests = read_manifests(connection, run_ids)
        found = differences([manifests[run_id] for run_id in run_ids])
        return {d.name: list(d.values.values()) for d in found if "server" in d.name}

    assert named(alone, pair) == {}
    assert named(here, pair) == {"server of the draft": ["none", "vllm"], "server of the target": ["none", "vllm"]}
    assert named(alone, newer) == {"target server": ["vllm 0.32.0", "vllm 0.33.0"]}
