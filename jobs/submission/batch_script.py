"""Lines of a batch script that run the submitted code, in this Python or another one.

The node copies the code archive, verifies the copy, imports from it, and removes it at the end. If a profile sets
`python`, that Python is often inside a container; the folders to mount are determined on the node. Containers rarely
contain Slurm's commands, so the script passes the time limit to its task and requeues the job if the task exits with
the requeue exit code.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import environment
from harness.engines import processes
from harness.weights import models
from jobs.run import trust
from jobs.slurm import client
from jobs.slurm.python_command import PythonCommand
from jobs.submission.code_archive import CODE, SHA256, digest_of

_VISIBLE_SECONDS = 60
"""How long a node waits for the archive to appear on a shared filesystem."""
_FOLDERS = ("TMPDIR", "HF_HOME", "HF_HUB_CACHE", "HARNESS_DATA_DIR", *processes.FOLDERS)
"""Variables with folders of the node, used by a task if set."""
_BEFORE = (
    # Packages of the submitting Python do not fit another one, and ~/.local is visible in most containers.
    "unset PYTHONPATH PYTHONHOME VIRTUAL_ENV",
    "export PYTHONNOUSERSITE=1",
)
"""Lines before the profile's setup, which may override them."""


def running(archive: Path, parameters: Mapping[str, Any], folders: Sequence[str] = ()) -> dict[str, Any]:
    """Add to submitit's parameters the lines that run the code of an archive.

    `folders`: names or paths, e.g. of weights; absolute paths of folders that exist here are mounted in a container.
    """
    command, setup = parameters.get("python"), parameters.get("setup", ())
    if not isinstance(command, PythonCommand):
        return {**parameters, "setup": [*setup, *_code(archive, f'rm -f "${CODE}"')]}
    named = [f'"${{{CODE}%/*}}"', *(f'"${{{name}:-}}"' for name in _FOLDERS)]
    asked = 'timeout 30 squeue -h -j "$harness_job" -o %e 2>/dev/null | grep . || echo unknown'
    own = [
        "harness_job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}",
        "at_end() {",
        f'  rm -f "${CODE}"',
        f'  [ $1 != {client.ASKS_FOR_REQUEUE} ] || {{ scontrol requeue "$harness_job" && sleep 120; }}',
        "}",
        *_code(archive, "at_end $?"),
        f"export {client.REQUEUE_CODE}={client.ASKS_FOR_REQUEUE}",
        f'export {client.END_TIME}=${{{client.END_TIME}:-$(date -d "$({asked})" +%s 2>/dev/null)}}',
        *command.shell_lines(named, [str(archive.parent.parent), *folders]),
    ]
    return {**parameters, "setup": [*_BEFORE, *setup, *own], "python": '"${harness_python[@]}"'}


def _code(archive: Path, at_end: str) -> list[str]:
    """Return the lines that copy and verify the archive, make Python import from it, and remove it at the end.

    A preview has an ellipsis as the digest, because there is no archive yet.
    """
    path, commit, relied_on = shlex.quote(str(archive)), environment.git_commit(), os.environ.get(trust.VARIABLE)
    return [
        f'export {CODE}=$(mktemp "${{TMPDIR:-/tmp}}/harness-XXXXXXXX.zip") {SHA256}={digest_of(archive)}',
        f"trap '{at_end}' EXIT",
        "trap : TERM  # a canceled job ends after its tasks, which still import from the archive",
        f"harness_archive={path}",
        f'for _ in $(seq {_VISIBLE_SECONDS}); do [ -s "$harness_archive" ] && break; sleep 1; done',
        f'cp "$harness_archive" "${CODE}" && echo "${SHA256}  ${CODE}" | sha256sum -c --quiet || exit 2',
        # `python -m` puts the working directory first, often a checkout edited since.
        f'export PYTHONSAFEPATH=1 PYTHONPATH="${CODE}${{PYTHONPATH:+:$PYTHONPATH}}"',
        # Under sbatch --export=NONE srun would hand none of these variables to the job's tasks.
        f"export SLURM_EXPORT_ENV=ALL {models.PAIR_FOLDER}={shlex.quote(str(models.bundled_folder()))}",
        *([f"export {trust.VARIABLE}={shlex.quote(relied_on)}"] if relied_on else []),
        *([f"export {environment.GIT_COMMIT}={shlex.quote(commit)}"] if commit else []),
    ]
