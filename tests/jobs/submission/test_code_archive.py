"""A job runs the code that was submitted, wherever it starts and whatever is edited meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness import environment
from harness.weights import models
from jobs import after
from jobs.run.folder import RunFolder
from jobs.submission import snapshot
from jobs.work.worker import run_parts

_ASK = """
import json, os, pathlib, sys
import jobs.run.spec, harness.weights.models, harness.environment
print(json.dumps({
    "code": jobs.run.spec.__file__,
    "target": harness.weights.models.resolve("demo-target").path_or_hub_id,
    "commit": harness.environment.git_commit(),
    "profiles": sorted(p.name for p in (pathlib.Path(jobs.run.spec.__file__).parents[2] / "slurm/clusters").iterdir()),
    "exported": os.environ.get("SLURM_EXPORT_ENV"),
}))
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / 'a run\'s `echo no` $HOME "folder"'
    folder.mkdir()
    return RunFolder(folder)


def test_the_archive_is_compressed_and_leaves_the_bundled_weights_where_they_are(run: RunFolder) -> None:
    archive = run.path / snapshot.take(run)
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
    names = {member.filename for member in members}
    assert {"jobs/submission/snapshot.py", "harness/data/demo.jsonl", "warehouse/sql/views/speed.sql"} <= names
    assert {"slurm/clusters/example.toml", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith("harness/data/models")]
    assert archive.stat().st_size < sum(member.file_size for member in members) / 2
    assert archive.stat().st_size < 2_000_000


def test_hidden_files_and_links_to_elsewhere_are_not_archived(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "checkout", tmp_path / "secret"
    elsewhere.write_text("secret")
    for name in ("harness/code.py", "harness/.env", "harness/.hidden/code.py", "jobs/__pycache__/code.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "jobs" / "outside.py").symlink_to(elsewhere)
    (root / "jobs" / "inside.py").symlink_to(root / "harness" / "code.py")
    names = [str(path.relative_to(root)) for path in snapshot._files(root)]
    assert names == ["harness/code.py", "jobs/inside.py"]


@pytest.mark.parametrize("folder", ["a:colon", "not there"])
def test_a_task_that_would_run_other_code_stops(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.delenv(snapshot.CODE, raising=False)
    snapshot.require()
    monkeypatch.setenv(snapshot.CODE, str(Path(snapshot.__file__).resolve().parents[2]))
    snapshot.require()
    monkeypatch.setenv(snapshot.CODE, str(tmp_path / folder))
    with pytest.raises(snapshot.WrongCode, match="instead of the submitted code"):
        run_parts([(str(run.path), [0])])
    with pytest.raises(snapshot.WrongCode, match="instead of the submitted code"):
        after.conclude(str(run.path))


def test_equal_code_is_archived_once(run: RunFolder) -> None:
    assert snapshot.take(run) == snapshot.take(run)
    assert len(list(run.path.iterdir())) == 1


def test_a_job_in_an_edited_checkout_runs_the_archive(run: RunFolder, tmp_path: Path) -> None:
    archive = run.path / snapshot.take(run)
    setup = snapshot.running(archive, sys.executable, {"setup": ["set -e"]})["setup"]
    checkout = tmp_path / "checkout"
    for package in ("harness", "jobs"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").write_text("raise SystemExit('the edited code runs')\n")
    (checkout / "zipfile.py").write_text("raise SystemExit('a module of the working folder runs')\n")
    (checkout / "ask.py").write_text("raise SystemExit('a module of the working folder runs')\n")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "ask.py").write_text(_ASK)
    script = "\n".join([*setup, f"{sys.executable} -m ask"])
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
    assert report["code"].startswith(str(tmp_path / "harness-code-"))
    assert report["target"] == models.resolve("demo-target").path_or_hub_id
    assert report["commit"] == environment.git_commit()
    assert "example.toml" in report["profiles"]
    assert report["exported"] == "ALL", "otherwise srun passes none of this to the job's tasks"
    assert not list(tmp_path.glob("harness-code-*")), "the unpacked code is removed at the end of the job"
