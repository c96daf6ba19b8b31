"""Trace files hold every field of a trace, under the same names."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from jobs.run import trace_files
from tests.jobs.runs import plan


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
