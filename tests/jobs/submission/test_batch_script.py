"""Batch scripts of jobs whose profile names their Python, run by bash with stand-ins for srun, Apptainer and Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness import environment
from harness.code_hash import running_code
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import code_archive, dispatch
from tests.jobs.runs import plan

_ASK = """
import json, os, sys, time
import jobs
from harness.code_hash import running_code
from jobs.submission import code_archive
from jobs.slurm import client
code_archive.require()
print(json.dumps({
    "argv": sys.argv, "jobs": jobs.__file__, "code": os.environ["HARNESS_CODE"],
    "isolated": [os.environ["PYTHONSAFEPATH"], os.environ["PYTHONNOUSERSITE"]], "path": sys.path,
    "commit": os.environ.get("HARNESS_GIT_COMMIT"), "hash": running_code().hash,
    "end": client.end_time("1"),
}), flush=True)
if "requeue" in sys.argv:
    client.requeue("1")
"""
_APPTAINER = """#!/bin/bash
# Records its arguments, and executes what follows the image.
printf '%s\\n' "$@" > "$RECORDS/apptainer"
while [[ $1 != *.sif ]]; do shift; done
shift
exec "$@"
"""
_SRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$RECORDS/srun"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
_SCONTROL = """#!/bin/bash
echo "$@" >> "$RECORDS/scontrol"
exit 1
"""

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return plan(tmp_path / "runs" / "a run", shards=1)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with the programs of a node, of which a container would not see Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"apptainer": _APPTAINER, "srun": _SRUN, "scontrol": _SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    # In a container, Python does not see the node's commands.
    (folder / "python3").write_text(f'#!/bin/bash\nPATH=/nowhere exec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder


@pytest.fixture
def script(run: RunFolder, node: Path, tmp_path: Path) -> Script:
    """Return a function that submits with options and lets bash run the batch script with a task that answers."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "ask.py").write_text(_ASK)

    def executed(
        options: Mapping[str, object], *arguments: str, command: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        options = {"setup": [f"export PYTHONPATH='{modules}'"], **options}
        parameters = dispatch.with_code(run, code_archive.take(run), profiles.submitit_parameters(options))
        srun = " ".join(["srun", "--unbuffered", *parameters.get("srun_args", [])])
        command = command or f"{srun} {parameters['python']} -u -m ask {' '.join(arguments)}"
        (tmp_path / "checkout").mkdir(exist_ok=True)
        (tmp_path / "checkout" / "ask.py").write_text("raise SystemExit('a module of the working folder runs')\n")
        return subprocess.run(
            ["bash", "-c", "\n".join([*parameters["setup"], command])],
            cwd=tmp_path / "checkout",
            env={
                "PATH": f"{node}:/usr/bin:/bin",
                "RECORDS": str(tmp_path),
                "TMPDIR": str(tmp_path),
                "SLURM_JOB_ID": "7",
                "SLURM_ARRAY_JOB_ID": "5",
                "SLURM_ARRAY_TASK_ID": "3",
                client.END_TIME: "1800000000",
                "PYTHONPATH": "/of/the/login/node",
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return executed


APPTAINER = {"python": "apptainer exec --nv $IMAGES/vllm.sif python3"}


def test_apptainer_runs_the_submitted_code_in_the_images_python(run: RunFolder, script: Script, tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    done = script(APPTAINER, "an argument", IMAGES="/my images", HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 0, done.stderr
    arguments = (tmp_path / "apptainer").read_text().splitlines()
    bound = [str(run.path.parent), str(tmp_path), str(tmp_path / "hf")]
    shown = [word for folder in bound for word in ("--bind", folder)]
    assert arguments[: len(shown) + 5] == ["exec", *shown, "--nv", "/my images/vllm.sif", "python3", "-u"]
    answer = json.loads(done.stdout)
    assert answer["argv"][1:] == ["an", "argument"]
    assert answer["code"].startswith(f"{tmp_path}/harness-")
    assert answer["jobs"] == f"{answer['code']}/jobs/__init__.py"
    assert answer["isolated"] == ["1", "1"]
    assert "/of/the/login/node" not in answer["path"]
    assert (answer["commit"], answer["hash"]) == (environment.git_commit(), running_code().hash)
    assert answer["end"] == 1_800_000_000
    assert not list(tmp_path.glob("harness-*")), "the code is removed at the end of the job"


def test_the_batch_script_requeues_for_a_task_without_slurms_commands(script: Script, tmp_path: Path) -> None:
    done = script(APPTAINER, "requeue", IMAGES="/images")
    assert done.returncode == client.ASKS_FOR_REQUEUE, done.stderr
    assert (tmp_path / "scontrol").read_text() == "requeue 5_3\n"
    assert not list(tmp_path.glob("harness-*"))


def test_the_time_limit_is_asked_for_outside_of_the_container(script: Script, node: Path) -> None:
    for printed, end in (("2027-01-15T08:00:00", "1800000000"), ("N/A", ""), ("", "")):
        (node / "squeue").write_text(f'#!/bin/bash\necho "{printed}"\n')
        (node / "squeue").chmod(0o755)
        done = script({"python": "echo"}, command=f'echo "${client.END_TIME}"', TZ="UTC", **{client.END_TIME: ""})
        assert done.stdout == f"{end}\n"


def test_a_python_that_the_variables_of_the_job_do_not_reach_is_named_in_one_line(script: Script) -> None:
    command = "env -u SLURM_JOB_ID -u SLURM_ARRAY_JOB_ID python3"
    done = script({"python": command}, command='"${harness_python[@]}" -m jobs.submission.task work /runs/a 0')
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert done.returncode == 2


def test_a_python_that_is_too_old_is_named_in_one_line() -> None:
    old = "import sys; sys.version_info = (3, 9, 1); import jobs.submission"
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "3.11" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("python", [{}, {"python": "python3"}])
def test_a_copy_with_one_flipped_bit_does_not_run(
    run: RunFolder, script: Script, tmp_path: Path, python: dict[str, object]
) -> None:
    archive = run.path / code_archive.take(run)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    flip = f"cp() {{ command cp '{tmp_path}/flipped' \"$2\"; }}"
    (tmp_path / "flipped").write_bytes(content)
    done = script({**python, "setup": [flip]}, command="echo started")
    assert (done.returncode, "started" in done.stdout) == (2, False), done.stderr
    assert "did NOT match" in done.stderr
    assert not list(tmp_path.glob("harness-*"))
