"""What is in the source distribution, the wheel and a job's code archive, and that commands run from the last two."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from harness import environment
from jobs.run.folder import RunFolder
from jobs.submission import batch_script, code_archive
from tests.jobs import runs
from tests.test_commands import COMMANDS
from tests.test_imports import PACKAGES, ROOT

BESIDE = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE",
          "SECURITY.md")  # fmt: skip
NOT_PACKED = ("__pycache__", ".*", "*.pyc", "runs", "*.egg-info")
_TRIED = (
    "launch --method speccot --dataset demo --engine scripted --limit 2 --samples 1",
    "worker PLANNED 0",
    "finalize PLANNED",
    "query --list",
    "report PLANNED -o page.html",
    "check --dataset demo",
    "sizing",
    "doctor --engine scripted",
    "reproduce specreason-figure3 --dry-run",
    *(f"example {kind}" for kind in ("profile", "suite", "scrontab", "notebook", "router")),
)
"""Commands of the console, which together read a file of every kind that is not Python."""
_OF_EXTRAS = ("torch", "vllm", "transformers", "peft", "matplotlib", "ipykernel")
"""Packages that no command but those of engines and trainings needs: of the extras, and transformers."""
_PROGRAM = """
import importlib, importlib.machinery, json, sys, traceback
modules, lines, missing = json.loads(sys.argv[1])
finder, find = importlib.machinery.PathFinder, importlib.machinery.PathFinder.find_spec
finder.find_spec = lambda name, *rest: None if name.split(".")[0] in missing else find(name, *rest)
from click.testing import CliRunner
from harness import environment
from harness.cli import console
mains = [(importlib.import_module(module).main, ["--help"]) for module in modules]
mains += [(console.main, [name, "--help"]) for names in console.COMMANDS.values() for name in names]
mains += [(console.main, words) for words in lines]
failed = []
for main, words in mains:
    result = CliRunner().invoke(main, words)
    if result.exit_code:
        trace = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        failed.append(" ".join([*words, result.output, trace]))
where = [sys.modules[name].__file__ for name in ("harness", "jobs", "grading", "warehouse")]
print(json.dumps({"failed": failed, "where": where, "commit": environment.git_commit()}))
"""


def build(source: Path, kind: str, output: Path) -> Path:
    """Build with this environment's setuptools, which needs no network; returns the file."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(output)], cwd=source, capture_output=True, text=True, check=True
    )
    return output / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], zipfile.ZipFile]:
    """The files of the source distribution, without its own folder, and the wheel that is built from it."""
    where = tmp_path_factory.mktemp("built")
    checkout, unpacked = where / "checkout", where / "unpacked"
    for name in (*PACKAGES, "docs", "slurm", "tests", "tools"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns(*NOT_PACKED))
    for name in (*BESIDE, "Makefile"):
        shutil.copy(ROOT / name, checkout)
    source = build(checkout, "sdist", where)
    with tarfile.open(source) as archive:
        archive.extractall(unpacked, filter="data")
    [folder] = unpacked.iterdir()
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return files, zipfile.ZipFile(build(folder, "wheel", where))


def packed(*folders: str) -> set[str]:
    """Return the files of the checkout that belong into the distributions."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pyc")) for part in path.relative_to(ROOT).parts)
    }


def test_the_wheel_has_every_file_of_the_packages_and_the_source_distribution_tests_tools_and_documents(
    built: tuple[set[str], zipfile.ZipFile],
) -> None:
    assert {*packed("docs", "tests", "tools", "slurm", *PACKAGES), *BESIDE, "Makefile"} - built[0] == set()
    names = set(built[1].namelist())
    assert packed(*PACKAGES) - names == set(), "add them to package-data in pyproject.toml"
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {"jobs/examples/clusters/example.toml", "jobs/examples/nightly.scrontab"} <= names, "links into slurm/"
    others = {name for name in names if name.partition("/")[0] not in PACKAGES}
    assert all(".dist-info/" in name for name in others), others


def test_the_wheel_says_what_it_is_and_requires_no_engine(built: tuple[set[str], zipfile.ZipFile]) -> None:
    wheel = built[1]
    [info] = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())
    assert "speculative-harness = harness.cli.console:run" in wheel.read(f"{info}/entry_points.txt").decode()
    required = metadata.get_all("Requires-Dist") or []
    base = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert base
    assert base.isdisjoint(set(_OF_EXTRAS) - {"transformers"})
    extras = {line.rpartition("extra == ")[2].strip("\"'") for line in required if "extra ==" in line}
    assert {"engine", "train", "figures", "notebook"} <= extras


def test_the_archive_of_a_job_has_every_file_of_the_packages_but_the_weights(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / code_archive.take(RunFolder(tmp_path))) as archive:
        names = set(archive.namelist())
    assert {name for name in packed(*PACKAGES) if not name.startswith("harness/data/models/")} - names == set()
    assert not [name for name in names if name.startswith("tools/")]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment with the packages that this project requires, and without the project.

    A folder that a .pth file names is searched, but its own .pth files, as of an editable installation, are not read.
    """
    venv.create(tmp_path / "environment", symlinks=True)
    folders = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    assert not [path for path in folders if (Path(path) / "harness").exists()]
    (site_packages(tmp_path / "environment") / "requirements.pth").write_text("\n".join(folders))
    return tmp_path / "environment" / "bin" / "python"


def site_packages(environment: Path) -> Path:
    [folder] = environment.glob("lib/python3*/site-packages")
    return folder


def try_commands(python: Path, folder: Path, setup: list[str]) -> dict[str, Any]:
    """Run every command's help and some commands in one process, after lines of a job's script; returns its report."""
    planned = runs.plan(folder / "planned", samples=1).path
    lines = [line.replace("PLANNED", str(planned)).split() for line in _TRIED]
    script = "\n".join([*setup, '"$0" -c "$1" "$2"'])
    command = ["bash", "-c", script, str(python), _PROGRAM, json.dumps([COMMANDS, lines, _OF_EXTRAS])]
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "page.html").stat().st_size > 100_000
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_commands_run_from_the_wheel(built: tuple[set[str], zipfile.ZipFile], python: Path, tmp_path: Path) -> None:
    installed = site_packages(tmp_path / "environment")
    built[1].extractall(installed)
    report = try_commands(python, tmp_path, [])
    assert report["failed"] == []
    assert all(Path(file).is_relative_to(installed) for file in report["where"])
    assert report["commit"] is None


def test_commands_run_from_the_archive_of_a_job(python: Path, tmp_path: Path) -> None:
    archive = tmp_path / code_archive.take(RunFolder(tmp_path))
    report = try_commands(python, tmp_path, batch_script.running(archive, {})["setup"])
    assert report["failed"] == []
    assert all(re.match(rf"{tmp_path}/harness-\w+\.zip/", file) for file in report["where"])
    assert report["commit"] == environment.git_commit()
