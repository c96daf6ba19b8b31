"""The recipe for Apptainer: its sections, the files that it copies, and its commands, as far as they run without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs.slurm import profiles

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "slurm" / "apptainer.def"
SECTIONS = {
    "arguments",
    "environment",
    "files",
    "help",
    "labels",
    "post",
    "pre",
    "runscript",
    "setup",
    "startscript",
    "test",
}


def sections() -> dict[str, list[str]]:
    """The lines of each section, and those of the header under an empty name."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in RECIPE.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"%(\w+)", line):
            name = match[1]
            assert name not in found, name
            found[name] = []
        elif line.strip() and not line.lstrip().startswith("#"):
            assert not name or line.startswith("    "), line
            found[name].append(line.strip())
    return found


def script(name: str) -> str:
    return "\n".join(sections()[name])


def test_the_recipe_has_apptainers_sections_and_a_vllm_that_the_project_admits() -> None:
    assert sections().keys() - {""} <= SECTIONS
    header = dict(line.split(": ", 1) for line in sections()[""])
    assert header["Bootstrap"] == "docker"
    image, version = header["From"].rsplit(":v", 1)
    assert image == "vllm/vllm-openai"
    [admitted] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["engine"]
    assert Requirement(admitted).specifier.contains(version)


@pytest.mark.parametrize("name", ["post", "environment", "runscript", "test"])
def test_the_scripts_of_the_recipe_are_shell(name: str) -> None:
    """Apptainer runs them with /bin/sh."""
    subprocess.run(["sh", "-n"], input=script(name), text=True, check=True)


def test_the_commands_of_the_recipe_install_the_project_from_the_files_that_it_copies(tmp_path: Path) -> None:
    """The real commands with the real pip, which resolves and builds but installs nothing."""
    for line in sections()["files"]:
        source, target = line.split()
        inside = tmp_path / target.removeprefix("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, inside, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, inside)
    commands = tmp_path / "commands"
    commands.mkdir()
    python = commands / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    # Neither an index nor the packages that the project requires: these are this environment's own.
    outside = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    ended = subprocess.run(
        ["sh", "-c", script("post").replace("/opt/", f"{tmp_path}/opt/")],
        env={**os.environ, **outside, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Would install speculative-reasoning-harness-" in ended.stdout
    folder = tmp_path / "opt" / "speculative-harness"
    assert (folder / "constraints.txt").exists()
    [packages] = folder.glob("build/lib") if (folder / "build").exists() else [folder]
    assert (packages / "harness" / "data" / "prompts.toml").is_file()


def test_the_profile_of_the_recipe_starts_the_python_of_its_image() -> None:
    profile = profiles.load("apptainer")
    assert re.search(r"apptainer exec --nv \S+\.sif python3", str(profile["python"]))
    assert profiles.submitit_parameters(profile)["additional_parameters"]["partition"] == "gpu"
    recipe = RECIPE.read_text(encoding="utf-8")
    assert "slurm/clusters/apptainer.toml" in recipe
    assert re.search(r"(\S+\.sif) slurm/apptainer.def", recipe)[1] in str(profile["python"])  # type: ignore[index]
