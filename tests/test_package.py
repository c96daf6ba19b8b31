"""What is in the source distribution and in the wheel that is built from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.test_imports import PACKAGES, ROOT

BESIDE = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE")
NOT_PACKED = ("__pycache__", ".*", "*.pyc", "runs", "*.egg-info")


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
    for name in (*PACKAGES, "slurm", "tests"):
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


def test_the_wheel_has_every_file_of_the_packages(built: tuple[set[str], zipfile.ZipFile]) -> None:
    names = set(built[1].namelist())
    assert packed(*PACKAGES) - names == set(), "add them to package-data in pyproject.toml"
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    others = {name for name in names if name.partition("/")[0] not in PACKAGES}
    assert all(".dist-info/" in name for name in others), others


def test_the_wheel_has_the_examples_of_the_folder_slurm(built: tuple[set[str], zipfile.ZipFile]) -> None:
    for inside, source in (
        ("jobs/examples/clusters/example.toml", "slurm/clusters/example.toml"),
        ("jobs/examples/suites/nightly.toml", "slurm/suites/nightly.toml"),
        ("jobs/examples/nightly.scrontab", "slurm/nightly.scrontab"),
    ):
        assert built[1].read(inside) == (ROOT / source).read_bytes()


def test_the_source_distribution_has_the_tests_and_the_documents(built: tuple[set[str], zipfile.ZipFile]) -> None:
    assert packed("tests", "slurm", *PACKAGES) - built[0] == set()
    assert {*BESIDE, "Makefile"} <= built[0]


def test_the_wheel_says_what_it_is(built: tuple[set[str], zipfile.ZipFile]) -> None:
    wheel = built[1]
    [info] = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Author"]
    assert metadata["Keywords"]
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= set(metadata.get_all("Classifier") or ())
    assert len(metadata.get_all("Project-URL") or ()) >= 3
    scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert "speculative-harness = harness.cli.console:run" in scripts
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert metadata["Version"] == version
