"""What the doctor says of a node that gave no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.submission.on_node import _last_log_line

ENDED = "srun: error: n1: task 0: Exited with exit code 2\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "it wrote nothing, so the node may not see this folder or this Python"),
        (ENDED, ENDED.strip()),
        (
            f"slurmstepd-n1: error: execve(): apptainer: No such file or directory\n{ENDED}",
            "slurmstepd-n1: error: execve(): apptainer: No such file or directory",
        ),
        (f"{ENDED}error: /opt/python3 has no submitit\n", "error: /opt/python3 has no submitit"),
        (f"Traceback\nOSError: [Errno 5]\nlast words\n{ENDED}", "OSError: [Errno 5]"),
    ],
)
def test_the_reason_is_said_and_not_just_the_exit_code(tmp_path: Path, log: str, said: str) -> None:
    logs = tmp_path / "logs" / "jobs"
    logs.mkdir(parents=True)
    (logs / "7_0_log.out").write_text(log)
    assert _last_log_line(tmp_path) == said
