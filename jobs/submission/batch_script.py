"""Jobs in a Python of their own, as a profile's `python` names it: often one in a container.

The batch script then needs nothing of its node but bash. It starts that Python with the program below, which unpacks
the submitted code where it runs, so that a container sees it wherever its /tmp is, and goes on as the job's task
(jobs.submission.task). Which folders are shown to a container is decided on the node, where they are.

A container seldom has Slurm's commands: the script tells its task the time limit, and requeues the job where the task
ends with the exit code that asks for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.engines import processes
from jobs.slurm import client
from jobs.slurm.python_command import PythonCommand

_FOLDER_VARIABLES = ("TMPDIR", "HF_HOME", "HF_HUB_CACHE", "HARNESS_DATA_DIR", *processes.FOLDERS)
"""Variables that name folders of the node, which a task uses where they are set."""
_BEFORE = (
    # Packages of the Python that submits are for another one, and ~/.local is visible in most containers.
    "unset PYTHONPATH PYTHONHOME VIRTUAL_ENV",
    "export PYTHONNOUSERSITE=1",
)
"""Lines before the profile's own, which may set these again."""
_JOB = 'harness_job="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"'
_LIMIT = (
    f'if [ -z "${{{client.END_TIME}:-}}" ]; then',
    '  harness_end=$(timeout 30 squeue -h -j "$harness_job" -o %e 2>/dev/null) || harness_end=',
    # An empty date is this day's beginning.
    f'  export {client.END_TIME}=$([ -z "$harness_end" ] || date -d "$harness_end" +%s 2>/dev/null)',
    "fi",
)
_PROGRAM = """\
import os, sys
def stop(text):
    sys.stderr.write("error: " + text + chr(10))
    sys.exit(2)
archive, python = sys.argv[1], "%s (%s)" % (sys.executable, sys.version.split()[0])
if sys.version_info < (3, 11):
    stop(python + " is too old: the python of the profile must be 3.11 or later")
if "SLURM_JOB_ID" not in os.environ:
    stop("the variables of the job do not reach " + python + ": give the container the environment of the node")
if not os.path.isfile(archive):
    stop(archive + " is not visible to " + python + ": mount its folder into the container")
sys.path.insert(0, archive)
from jobs.submission.task import begin
begin(sys.argv[1:])
"""
"""What the interpreter runs first, of any version from 3.0 on, so that an old one is named."""


def running(
    archive: Path, sha256: str, command: PythonCommand, parameters: Mapping[str, Any], further: list[str]
) -> dict[str, Any]:
    """Add to submitit's parameters that a job runs the code of this archive in the Python of its own.

    `further` are lines of the batch script that every job has.
    """
    return {
        **parameters,
        "setup": [*_BEFORE, *parameters.get("setup", ()), *further, *_setup(archive, sha256, command)],
        "python": '"${harness_python[@]}"',
    }


def _setup(archive: Path, sha256: str, command: PythonCommand) -> list[str]:
    program = f"-c {shlex.quote(_PROGRAM)} {shlex.quote(str(archive))} {sha256}"
    return [
        _JOB,
        'harness_job="${harness_job:-$SLURM_JOB_ID}"',
        *_LIMIT,
        f"export {client.REQUEUE_CODE}={client.ASKS_FOR_REQUEUE}",
        f"trap '[ $? != {client.ASKS_FOR_REQUEUE} ] || {{ scontrol requeue \"$harness_job\" && sleep 120; }}' EXIT",
        *(_folders(archive, command) if command.starts_container else []),
        f"harness_python=({command.shell_words()} {program})",
    ]


def _folders(archive: Path, command: PythonCommand) -> list[str]:
    """Return lines that make the options by which a container shows the job's folders.

    None of them contains a comma or a colon, which have a meaning there: such a folder is left to the profile.
    """
    own = [str(archive.parent.parent), *command.folders]
    named = [f'"${{{name}:-}}"' for name in _FOLDER_VARIABLES]
    return [
        "harness_folders=()",
        f"for folder in {' '.join([*map(shlex.quote, own), *named])}; do",
        "  [[ $folder == /?* && $folder != *[,:]* && -d $folder ]] || continue",
        '  [[ " ${harness_folders[*]} " == *" $folder "* ]] || harness_folders+=("$folder")',
        "done",
        *command.shell_bind(),
    ]
