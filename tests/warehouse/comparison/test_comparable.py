"""Which runs are compared: the default baseline, and what makes times comparable with those of the target alone."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.shared import known, with_settings
from tests.warehouse import cells, runs
from tests.warehouse.cells import BAD, GOOD, Warehouse, compare, compared, load, select
from warehouse.comparison.manifests import are_files_implied, differences, latency_mismatches, read_manifests
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.sql.baselines import _OF_TIMES, SETTINGS, Setting, unlike
from warehouse.suites.measured import measure

DRAFT = replace(cells.VANILLA, params={"model": "draft"}, draft=runs.DRAFT, target=None)
OTHER_TARGET = replace(cells.VANILLA, target=replace(runs.TARGET, model="huge", fingerprint="huge@r1"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    where = tmp_path_factory.mktemp("baselines")
    made = {
        "method": cells.finished(where, cells.SPEC, BAD),
        "draft alone": cells.finished(where, DRAFT, BAD),
        "target": cells.finished(where, cells.VANILLA, GOOD),
        "target again": cells.finished(where, replace(cells.VANILLA, seed=3), GOOD),
        "limited target": cells.finished(where, replace(cells.VANILLA, seed=4), GOOD[:6]),
        "unfinished target": cells.finished(where, replace(cells.VANILLA, seed=5), GOOD, missing=3),
        "other target": cells.finished(where, OTHER_TARGET, GOOD),
        "empty target": cells.finished(where, replace(cells.VANILLA, seed=6), GOOD, missing=48),
        "two samples": cells.finished(where, replace(cells.SPEC, samples=2), tuple(min(2, right) for right in BAD)),
    }
    return Warehouse.of(where, made)


@pytest.mark.parametrize(
    ("names", "baseline"),
    [
        (("draft alone", "method", "target"), "target"),
        (("method", "draft alone"), "method"),
        (("method", "target again", "target"), "target again"),
        (("method", "other target", "limited target", "target"), "target"),
        (("method", "unfinished target", "empty target", "target"), "target"),
    ],
)
def test_the_default_baseline_is_the_target_alone(warehouse: Warehouse, names: tuple[str, ...], baseline: str) -> None:
    found = json.loads(warehouse.compare(*names, "--format", "json").stdout)
    [entry] = found["baselines"]
    assert (entry["dataset"], entry["run_id"]) == ("sums", warehouse.ids[baseline])
    others = [warehouse.ids[baseline]] * (len(found["rows"]) - 1)
    assert [row["baseline_run_id"] for row in found["rows"]] == [None, *others], "the baseline is first"


def test_a_majority_is_by_default_over_as_many_samples_as_every_run_has(warehouse: Warehouse) -> None:
    metrics = [row["metric"] for row in warehouse.compared("target", "two samples", "--maj")]
    assert metrics == ["pass@1[avg-of-4]", "maj@2", "pass@1[avg-of-2]", "maj@2"]


def test_each_number_of_samples_in_flight_is_compared_with_its_own_target_alone_if_there_is_one(tmp_path: Path) -> None:
    method = replace(cells.SPEC, method="specreason", params={"threshold": 5.0})
    folders = []
    for spec, right, many_seconds, one_seconds in ((cells.VANILLA, GOOD, 30.0, 20.0), (method, BAD, 40.0, 10.0)):
        single, one_right = replace(spec, samples=1), [min(1, score) for score in right[:6]]
        folders.append(cells.finished(tmp_path, replace(spec, concurrency=32), right, latency=many_seconds))
        folders.append(cells.finished(tmp_path, single, one_right, latency=one_seconds))
    base_many, base_one, many, one = load(tmp_path, *folders)
    found = {row["run_id"]: row for row in compared(tmp_path, base_many, base_one, many, one)}
    bases = {run: row["baseline_run_id"] for run, row in found.items()}
    assert bases == {base_many: None, many: base_many, base_one: None, one: base_one}
    assert [found[run]["speed_up"] for run in (many, one)] == pytest.approx([0.75, 2.0])
    first, *others = compared(tmp_path, base_many, many, one)
    assert {row["baseline_run_id"] for row in others} == {first["run_id"]}
    assert [row["speed_up"] for row in others if row["latency_unlike"]] == [None]


def test_a_speed_up_names_the_cards_where_they_differ(tmp_path: Path) -> None:
    base = cells.finished(tmp_path, cells.VANILLA, GOOD)
    names = load(tmp_path, base, cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0, num_devices=2))
    assert "2 GPUs : 1" in compare(tmp_path, *names).stdout
    [_, run] = compared(tmp_path, *names)
    assert (run["num_cards"], run["num_cards_of_baseline"]) == (2, 1)
    [row] = select(tmp_path, "FROM speed_up")
    assert [one["speed_up_per_card_second"] for one in (run, row)] == pytest.approx([1.0, 1.0])


def test_a_wider_target_alone_is_a_baseline_on_as_many_cards(tmp_path: Path) -> None:
    wide = with_settings(cells.VANILLA, "target", tensor_parallel=2)
    own = [
        cells.finished(tmp_path, replace(cells.SPEC, seed=number), GOOD, latency=5.0, num_devices=number)
        for number in (1, 2)
    ]
    names = load(tmp_path, cells.finished(tmp_path, wide, GOOD, num_devices=2), *own)
    _, *found = compared(tmp_path, *names)
    assert [run["speed_up"] is not None for run in found] == [False, True]
    assert [row["run_id"] for row in select(tmp_path, "FROM speed_up")] == [names[2]]


SHARED = with_settings(with_settings(cells.SPEC, "draft", tensor_parallel=1), "target", tensor_parallel=4)
OWN_CARD = with_settings(with_settings(SHARED, "draft", gpus=(0,)), "target", gpus=(1, 2, 3, 4))
ALONE = with_settings(cells.VANILLA, "target", tensor_parallel=4)


def ran_on(where: Path, spec: RunSpec, **attempt: Any) -> RunFolder:
    return cells.finished(where, spec, [2] * 6, **attempt)


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
        assert known(measure(connection, "ratio_of_means", pair, alone)).estimate == 2.0


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


def test_latencies_of_workers_with_other_numbers_of_samples_have_no_ratio(tmp_path: Path) -> None:
    """Eight samples of the target alone beside 24 of a method, both with --concurrency 24; whatever the flag says."""
    specs = (replace(cells.VANILLA, concurrency=24, samples=2), replace(cells.SPEC, concurrency=24, samples=6))
    load(tmp_path, *(cells.finished(tmp_path, spec, [2] * 4) for spec in specs))
    with reader(tmp_path / "w.duckdb") as connection:
        sql = "FROM run_conditions SELECT run_id, samples_in_flight, concurrency ORDER BY samples_in_flight"
        few, many = connection.execute(sql).fetchall()
        assert (few[1:], many[1:]) == ((8, 24), (24, 24))
        assert connection.execute("FROM speed_up").fetchall() == []
        ratios = [measure(connection, "ratio_of_means", many[0], base[0]) for base in (few, many)]
    assert [ratio is None for ratio in ratios] == [True, False]


def test_a_worker_with_several_shards_has_their_samples_in_flight(tmp_path: Path) -> None:
    """`--shards-per-task`: two shards of 12 samples in one worker."""
    folder = cells.finished(tmp_path, replace(cells.SPEC, concurrency=24, samples=6), [2] * 4)
    whole = folder.shard(0)
    folder.assign_again([whole[:12], whole[12:]])
    load_run(folder, tmp_path / "w.duckdb")
    sql = "SELECT samples_in_flight AS n, (SELECT count(DISTINCT shard) FROM sample) AS shards FROM run_conditions"
    assert select(tmp_path, sql) == [{"n": 24, "shards": 2}]


def test_a_published_ratio_of_two_concurrencies_is_not_refused_for_them() -> None:
    """As in SpecCoT's table 6, where the baseline has one sample in flight."""
    alike = dict.fromkeys((one.column for one in _OF_TIMES), "same") | {"dataset_hash": "same", "num_cards": 1}
    run = {**alike, "concurrency": 8, "samples_in_flight": 8}
    baseline = {**alike, "concurrency": 1, "samples_in_flight": 1}
    assert len(unlike(run, baseline)) == 2
    assert unlike(run, baseline, across_concurrencies=True) == []
    assert len(unlike(run, {**baseline, "device_kinds": "other"}, across_concurrencies=True)) == 1


@pytest.mark.parametrize("setting", _OF_TIMES, ids=lambda setting: setting.column)
def test_the_condition_of_the_views_is_that_of_the_reasons(setting: Setting) -> None:
    names = sorted({setting.column, "num_cards", "target_fingerprint"})
    sides = [dict(zip(names, values, strict=True)) for values in product((None, "1", "2"), repeat=len(names))]
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE side (number INTEGER, {', '.join(f'{name} VARCHAR' for name in names)})")
        connection.executemany(
            f"INSERT INTO side VALUES (?, {', '.join('?' for _ in names)})",
            [[number, *side.values()] for number, side in enumerate(sides)],
        )
        sql = f"SELECT run.number, baseline.number, {setting.condition} FROM side AS run CROSS JOIN side AS baseline"
        found = {(own, base): bool(is_alike) for own, base, is_alike in connection.execute(sql).fetchall()}
    assert found == {
        (own, base): setting.is_alike(run, baseline)
        for own, run in enumerate(sides)
        for base, baseline in enumerate(sides)
    }


def test_every_setting_that_times_depend_on_is_the_methods_own_or_compared_with_the_target_alone() -> None:
    own = {one.column for one in SETTINGS if "latency" in one.matter and one.alone == "free"}
    assert {name for name in own if "draft" not in name and "reward" not in name} == {"engine_take_turns"}


def test_views_and_comparisons_agree(tmp_path: Path) -> None:
    attempts: dict[str, dict[str, Any]] = {
        "": {"num_devices": 2}, "devices": {"device": "NVIDIA L4"}, "processor": {"hardware": {"cpu": "another"}}
    }  # fmt: skip
    folders = [ran_on(tmp_path, replace(cells.SPEC, tag=name or None), **attempt) for name, attempt in attempts.items()]
    base, *own = load(tmp_path, ran_on(tmp_path, cells.VANILLA), *folders)
    for reason, run in zip(attempts, own, strict=True):
        assert [text.partition(":")[0] for text in mismatches(tmp_path, run, base)] == ([reason] if reason else [])
    assert [row["run_id"] for row in select(tmp_path, "FROM comparable_baseline")] == [own[0]]


@pytest.mark.parametrize(
    ("models", "files", "implied"), [("aab", "xxy", True), ("aab", "xyz", False), ("aab", "xxx", False)]
)
def test_files_follow_from_names_only_if_both_differ_between_the_same_runs(
    models: str, files: str, implied: bool
) -> None:
    assert are_files_implied("draft files", {"draft": list(models), "draft files": list(files)}) is implied
    assert not are_files_implied("draft", {"draft": list(models)})


def test_a_reason_says_what_both_have() -> None:
    run: dict[str, Any] = {one.column: "same" for one in _OF_TIMES} | {"num_cards": 2, "dataset_hash": "same"}
    assert unlike(run, {**run, "engine_target_tensor_parallel": 1}) == [], "cards are as many"
    [reason] = unlike(run, {**run, "engine_target_tensor_parallel": 1, "num_cards": 1})
    assert {"1", "same"} < set(reason.replace(",", "").split())
