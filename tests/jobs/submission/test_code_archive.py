"""A job runs the code that was submitted, wherever it starts and whatever is edited meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import environment
from harness.code_hash import running_code
from harness.weights import models
from jobs.run.folder import RunFolder
from jobs.submission import batch_script, code_archive, task

_ASK = """
import json, os, pathlib, sys
import harness.code_hash, harness.weights.models, harness.environment
import jobs.run.spec, jobs.run.folder, jobs.slurm.profiles, jobs.submission.code_archive
print(json.dumps({
    "code": jobs.run.spec.__file__,
    "target": harness.weights.models.resolve("demo-target,").path_or_hub_id,
    "commit": harness.environment.git_commit(),
    "hash": harness.code_hash.running_code().hash,
    "profile": jobs.slurm.profiles.load("example")["partition"],
    "again": jobs.submission.code_archive.take(jobs.run.folder.RunFolder(pathlib.Path(sys.argv[1]))),
    "exported": os.environ.get("SLURM_EXPORT_ENV"),
}))
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / 'a run\'s `echo no` $HOME "folder"'
    folder.mkdir()
    return RunFolder(folder)


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
    with pytest.raises(RuntimeError, match="it was changed"):
        code_archive.require()


def test_equal_code_is_archived_once_and_what_is_not_that_code_is_replaced(run: RunFolder) -> None:
    name = code_archive.take(run)
    content, written_at = (run.path / name).read_bytes(), (run.path / name).stat().st_mtime_ns
    assert code_archive.take(run) == name
    assert (run.path / name).stat().st_mtime_ns == written_at
    (run.path / name).write_bytes(b"a colleague's")
    assert code_archive.take(run) == name
    assert (run.path / name).read_bytes() == content
    assert len(list(run.path.iterdir())) == 1


def test_a_job_in_an_edited_checkout_runs_the_archive(run: RunFolder, tmp_path: Path) -> None:
    archive = run.path / code_archive.take(run)
    setup = batch_script.running(archive, {"setup": ["set -e"]})["setup"]
    checkout = tmp_path / "checkout"
    for package in ("harness", "jobs"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").write_text("raise SystemExit('the edited code runs')\n")
    (checkout / "zipfile.py").write_text("raise SystemExit('a module of the working folder runs')\n")
    (checkout / "ask.py").write_text("raise SystemExit('a module of the working folder runs')\n")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "ask.py").write_text(_ASK)
    (tmp_path / "again").mkdir()
    script = "\n".join([*setup, f"{sys.executable} -m ask {tmp_path}/again"])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": str(modules), "SLURM_EXPORT_ENV": "NONE"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["code"].startswith(str(tmp_path / "harness-"))
    assert report["hash"] == running_code().hash
    assert report["again"] == archive.name, "a job submits what it runs itself"
    assert report["target"] == models.resolve("demo-target,").path_or_hub_id
    assert report["commit"] == environment.git_commit()
    assert report["profile"] == "gpu"
    assert report["exported"] == "ALL", "otherwise srun passes none of this to the job's tasks"
    assert not list(tmp_path.glob("harness-*")), "the copy is removed at the end of the job"
