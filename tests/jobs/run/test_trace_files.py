"""Trace files hold every field of a trace, under the same names."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from harness.trace import Trace
from jobs.run import trace_files
from tests.jobs.run.test_journal import a_call, a_step
from tests.jobs.runs import plan


def test_a_trace_comes_back_as_it_was_written(tmp_path: Path) -> None:
    trace = Trace("s1", "demo/0", 0, 1, steps=[a_step("x")], calls=[a_call()], stop_reason="answered")
    path = plan(tmp_path).trace_files_dir / "p.parquet"
    trace_files.write_table(path, trace_files.TRACES, [asdict(trace)], {"attempt": "{}"})
    [row] = trace_files.read_rows(path)
    assert row["steps"][0]["verdicts"][0]["logprobs"] == [-0.1, -2.4]
    assert row["calls"] == [asdict(a_call())]
    assert trace_files.read_metadata(path) == {"attempt": "{}"}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = plan(tmp_path).trace_files_dir / "p.parquet"
    trace_files.write_table(path, trace_files.GRADES, [])
    before = path.read_bytes()
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        trace_files.write_table(path, trace_files.GRADES, [{"seconds": "not a number"}])
    assert path.read_bytes() == before


def test_a_process_that_may_start_no_thread_does_not_call_a_file_damaged(tmp_path: Path) -> None:
    """Damaged files are moved aside; a thread fails here because its stack alone is larger than the process may be."""
    path = plan(tmp_path).trace_files_dir / "p.parquet"
    trace_files.write_table(path, trace_files.GRADES, [], {})
    stack, memory = 1 << 40, 1 << 36
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from jobs.run import trace_files\n"
        "trace_files.read_rows(Path(sys.argv[1]))\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert f"MemoryError: {path} cannot be read" in done.stderr
