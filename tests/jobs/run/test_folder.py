"""The plan of a run folder, and which changes of it are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.run.files import RunDamaged
from jobs.run.spec import assign_to_shards
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


def test_the_shards_of_a_run_with_workers_are_not_assigned_again(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    before = run.shards()
    fewer = assign_to_shards([unit for shard in before for unit in shard], 1)
    with run.shard_lock(1), pytest.raises(ValueError, match="--shards 1: workers are running"):
        run.assign_again(fewer)
    assert run.shards() == before
    run.assign_again(fewer)
    assert run.shards() == fewer
    with pytest.raises(ValueError, match="no shard 1: its samples were reassigned"):
        run_shard(str(run.path), 1)


def test_a_specification_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    run = plan(tmp_path)
    text = run.spec_path.read_text(encoding="utf-8")
    for written, named in (('"format": 7', "format 7"), ('"forma": 1', "no format")):
        run.spec_path.write_text(text.replace('"format": 3', written))
        with pytest.raises(RunDamaged, match=rf"spec\.json has {named}, but this version of the harness only reads"):
            run.spec()


def test_an_unreadable_file_of_the_plan_is_named_with_the_reason(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run.spec_path.write_text(run.spec_path.read_text(encoding="utf-8").replace('"seed": 0', '"seed": "x"'))
    with pytest.raises(RunDamaged, match=r"spec\.json is damaged: seed: Input should be a valid integer"):
        run.spec()
    run.problems_path.unlink()
    with pytest.raises(RunDamaged, match=r"problems\.parquet is missing$"):
        run.problems()
    run.plan_path.write_bytes(run.plan_path.read_bytes()[:200])
    for read in (run.num_shards, run.shards, run.units_by_shard, lambda: run.shard(0)):
        with pytest.raises(RunDamaged, match=r"plan\.parquet is damaged: its content does not match") as raised:
            read()
        assert "\n" not in str(raised.value)
