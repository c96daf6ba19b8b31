"""What `jobs status` says of a run from its files alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobs.run import trace_files
from jobs.watch.recent import WINDOW_SECONDS, Recent
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


def test_samples_of_journals_and_of_new_trace_files_make_the_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path, shards=3)
    run_shard(str(run.path), 0)
    monkeypatch.setattr("jobs.run.state.compact_own", lambda run, path: None)
    run_shard(str(run.path), 1)
    assert len(list(run.trace_files_dir.iterdir())) == len(list(run.journal_dir.iterdir())) == 1
    found = status(run)
    assert (found.planned, found.finished, found.in_flight) == (24, 16, 0)
    assert [shard.where for shard in found.shards] == ["finished", "finished", "stopped"]
    assert found.eta_seconds is not None
    assert found.samples_per_second * found.eta_seconds == pytest.approx(8)


def test_both_kinds_of_files_are_counted_alike(tmp_path: Path) -> None:
    run = plan(tmp_path)
    copied: list[bytes] = []
    compacting = tmp_path / "compacting"
    compacting.write_text("")

    def keep(run: object, path: Path) -> None:
        copied.append(path.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.run.state.compact_own", keep)
        run_shard(str(run.path), 0)
    from jobs.run.state import compact

    compact(run)
    [part] = run.trace_files()
    now = time.time()
    of_journal, of_trace_file = Recent(now), Recent(now)
    of_journal.add_journal(copied[0], 24)
    of_trace_file.add_trace_file(part)
    assert of_journal == of_trace_file
    assert of_journal.samples == 24
    assert sum(of_journal.tokens.values()) == sum(
        call["output_tokens"] for row in trace_files.read_rows(part) for call in row["calls"]
    )


def test_what_was_long_ago_makes_no_pace(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    [part] = run.trace_files()
    later = Recent(time.time() + 2 * WINDOW_SECONDS)
    later.add_trace_file(part)
    assert (later.samples, later.tokens_per_second()) == (0, {})
    part.write_bytes(b"damaged")
    os.utime(part)
    assert status(run).samples_per_second == 0
