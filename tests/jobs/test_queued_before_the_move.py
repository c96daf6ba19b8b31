"""Jobs that were queued before modules moved name the functions that they run by their former places."""

from __future__ import annotations

import pickle

import pytest

from jobs import nightly
from jobs.after import conclude
from jobs.work import worker


@pytest.mark.parametrize(
    ("former", "function"),
    [
        (b"cjobs.worker\nrun_shards\n.", worker.run_shards),
        (b"cjobs.worker\nrun_shard\n.", worker.run_shard),
        (b"cjobs.work.worker\nrun_shards\n.", worker.run_shards),
        (b"cjobs.work.worker\nrun_shard\n.", worker.run_shard),
        (b"cjobs.conclude\nconclude\n.", conclude.conclude),
        (b"cjobs.nightly\nconclude\n.", nightly.conclude),
    ],
)
def test_a_queued_job_finds_what_it_names(former: bytes, function: object) -> None:
    assert pickle.loads(former) is function
