"""The recipe for Apptainer: its sections, and the files that it copies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "slurm" / "apptainer.def"
SECTIONS = {
    "arguments", "environment", "files", "help", "labels", "post", "pre", "runscript", "setup", "startscript", "test",
}  # fmt: skip


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


def test_the_recipe_has_apptainers_sections_and_a_vllm_that_the_project_admits() -> None:
    assert sections().keys() - {""} <= SECTIONS
    header = dict(line.split(": ", 1) for line in sections()[""])
    assert header["Bootstrap"] == "docker"
    image, version = header["From"].rsplit(":v", 1)
    assert image == "vllm/vllm-openai"
    [admitted] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["engine"]
    assert Requirement(admitted).specifier.contains(version)


def test_the_recipe_copies_what_the_project_is_installed_from() -> None:
    sources = {line.split()[0] for line in sections()["files"]}
    assert {"harness", "grading", "jobs", "warehouse", "pyproject.toml"} <= sources
