"""Batch scripts, run by bash with stand-ins for srun, Apptainer and Slurm: a job runs the code that was submitted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness import environment
from harness.code_hash import running_code
from harness.weights import models
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import code_archive, dispatch, task
from tests.jobs.runs import plan

_ASK = """
import json, os, pathlib, sys
import harness.environment, jobs
from harness.code_hash import running_code
from harness.weights import models
from jobs.run.folder import RunFolder
from jobs.submission import code_archive
from jobs.slurm import client, profiles
code_archive.require()
print(json.dumps({
    "argv": sys.argv, "jobs": jobs.__file__, "code": os.environ["HARNESS_CODE"],
    "isolated": [os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONNOUSERSITE")], "path": sys.path,
    "commit": harness.environment.git_commit(), "hash": running_code().hash,
    "target": models.resolve("demo-target").path_or_hub_id, "profile": profiles.load("example")["partition"],
    "again": code_archive.take(RunFolder(pathlib.Path(os.environ["TMPDIR"], "again"))),
    "exported": os.environ["SLURM_EXPORT_ENV"], "end": client.end_time("1"),
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
_SQUEUE = "#!/bin/bash\necho 2027-01-15T08:00:00\n"
_SCONTROL = """#!/bin/bash
echo "$@" >> "$RECORDS/scontrol"
exit 1
"""

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return plan(tmp_path / "runs" / 'a run\'s `echo no` $HOME "folder"')


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A folder with the programs of a node, of which a container would not see Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"apptainer": _APPTAINER, "srun": _SRUN, "scontrol": _SCONTROL, "squeue": _SQUEUE}.items():
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
        command = command or f"{srun} {parameters.get('python', sys.executable)} -u -m ask {' '.join(arguments)}"
        for edited in ("harness/__init__.py", "jobs/__init__.py", "zipfile.py", "ask.py"):
            (tmp_path / "checkout" / edited).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "checkout" / edited).write_text("raise SystemExit('a module of the working folder runs')\n")
        (tmp_path / "again").mkdir(exist_ok=True)
        return subprocess.run(
            ["bash", "-c", "\n".join([*parameters["setup"], command])],
            cwd=tmp_path / "checkout",
            env={
                "PATH": f"{node}:/usr/bin:/bin",
                "RECORDS": str(tmp_path),
                "TMPDIR": str(tmp_path),
                "SLURM_EXPORT_ENV": "NONE",
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


@pytest.mark.parametrize("options", [{}, APPTAINER], ids=["in an edited checkout", "in a container"])
def test_a_job_runs_the_submitted_code_wherever_it_starts(
    options: dict[str, object], run: RunFolder, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "hf").mkdir()
    done = script(options, "an argument", IMAGES="/my images", HF_HOME=str(tmp_path / "hf"), TZ="UTC")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if options:
        assert answer["isolated"] == ["1", "1"]
        arguments = (tmp_path / "apptainer").read_text().splitlines()
        bound = [str(run.path.parent), str(tmp_path), str(tmp_path / "hf")]
        shown = [word for folder in bound for word in ("--bind", folder)]
        assert arguments[: len(shown) + 5] == ["exec", *shown, "--nv", "/my images/vllm.sif", "python3", "-u"]
    assert answer["argv"][1:] == ["an", "argument"]
    assert answer["code"].startswith(f"{tmp_path}/harness-")
    assert answer["jobs"] == f"{answer['code']}/jobs/__init__.py"
    assert "/of/the/login/node" not in answer["path"]
    assert (answer["commit"], answer["hash"]) == (environment.git_commit(), running_code().hash)
    assert answer["end"] == 1_800_000_000
    assert answer["target"] == models.resolve("demo-target").path_or_hub_id
    assert (answer["profile"], answer["again"]) == ("gpu", code_archive.take(run)), "a job submits what it runs itself"
    assert answer["exported"] == "ALL", "otherwise srun passes none of this to the job's tasks"
    assert not list(tmp_path.glob("harness-*")), "the code is removed at the end of the job"


def test_the_batch_script_requeues_for_a_task_without_slurms_commands(script: Script, tmp_path: Path) -> None:
    done = script(APPTAINER, "requeue", IMAGES="/images")
    assert done.returncode == client.ASKS_FOR_REQUEUE, done.stderr
    assert (tmp_path / "scontrol").read_text() == "requeue 5_3\n"
    assert not list(tmp_path.glob("harness-*"))


def test_the_time_limit_is_asked_for_outside_of_the_container(script: Script, node: Path) -> None:
    for printed, end in (("2027-01-15T08:00:00", "1800000000"), ("N/A", ""), ("", "")):
        (node / "squeue").write_text(f'#!/bin/bash\necho "{printed}"\n')
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


def test_hidden_files_and_links_to_elsewhere_are_not_archived(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "checkout", tmp_path / "secret"
    elsewhere.write_text("secret")
    for name in ("harness/code.py", "harness/.env", "harness/.hidden/code.py", "jobs/__pycache__/code.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "jobs" / "outside.py").symlink_to(elsewhere)
    (root / "jobs" / "inside.py").symlink_to(root / "harness" / "code.py")
    names = sorted(name for name, _ in code_archive._files(root))
    assert names == ["harness/code.py", "jobs/inside.py"]


@pytest.mark.parametrize("folder", ["a:colon", "not there"])
def test_a_task_that_would_run_other_code_stops_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    monkeypatch.delenv(code_archive.CODE, raising=False)
    code_archive.require()
    monkeypatch.setenv(code_archive.CODE, str(tmp_path / folder))
    with pytest.raises(SystemExit) as stop:
        task.main(["work", str(tmp_path), "0"])
    assert stop.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert folder in line


def test_a_process_whose_archive_was_changed_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "code.zip"
    archive.write_bytes(b"changed")
    monkeypatch.setenv(code_archive.CODE, str(archive))
    monkeypatch.setenv(code_archive.SHA256, "0" * 64)
    monkeypatch.setattr(code_archive, "ROOT", archive)
    with pytest.raises(RuntimeError, match="was changed after submission"):
        code_archive.require()


def test_equal_code_is_archived_once_and_what_is_not_that_code_is_replaced(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    name = code_archive.take(run)
    content, written_at = (run.path / name).read_bytes(), (run.path / name).stat().st_mtime_ns
    assert code_archive.take(run) == name
    assert (run.path / name).stat().st_mtime_ns == written_at
    (run.path / name).write_bytes(b"a colleague's")
    assert code_archive.take(run) == name
    assert (run.path / name).read_bytes() == content
    assert len(list(run.path.iterdir())) == 1
