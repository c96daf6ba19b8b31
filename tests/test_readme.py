"""READMEs name only files, modules, flags, targets and folders that exist."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.test_imports import PACKAGES

ROOT = Path(__file__).parent.parent
NOT_OURS = {".venv", "runs", "build"}
"""Folders whose pages are not documentation of this version; hidden folders are left out as well."""
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part in NOT_OURS or part.startswith(".") for part in path.relative_to(ROOT).parts)
)

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"python3? -m ([\w.]+\w)((?:[^`#\n|&;()]|\|(?=[a-z]))*)")
_SOURCE = re.compile(r"`([\w./-]+\.(?:py|sql|toml))`")
_FLAG = re.compile(r"--[a-z][a-z-]*")
_MADE_ELSEWHERE = {"venv", "zipfile", "pip"}
"""Modules of Python itself."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: Path) -> str:
    """A page, with continued lines joined."""
    return path.read_text("utf-8").replace("\\\n", " ")


def dead_links(page: Path) -> list[str]:
    """Relative links of a page that lead to no file of the checkout."""
    targets = [target.partition("#")[0] for target in _LINK.findall(text(page)) if "://" not in target]
    return [target for target in targets if target and not (page.parent / target).exists()]


def lost_files(page: Path) -> list[str]:
    """Source files that a page names in backticks and that are neither beside it nor at that path of the checkout."""
    return [
        name for name in _SOURCE.findall(text(page)) if not any((top / name).is_file() for top in (page.parent, ROOT))
    ]


def commands(page: str) -> set[tuple[str, str]]:
    """Every `python -m MODULE …` of a text, as the module and the words after it."""
    return {(module, words.strip()) for module, words in _COMMAND.findall(page) if module not in _MADE_ELSEWHERE}


@cache
def help_of(*command: str) -> str | None:
    """What `python -m COMMAND --help` prints, or `--help-all` where there is more; None if it fails."""
    shown = _printed(*command, "--help")
    return _printed(*command, "--help-all") if shown is not None and "--help-all" in shown else shown


def _printed(module: str, *words: str) -> str | None:
    spec = find_spec(module)
    name = f"{module}.__main__" if spec and spec.submodule_search_locations else module
    main = getattr(importlib.import_module(name), "main", None)
    if isinstance(main, click.Command):
        answer = CliRunner().invoke(main, words)
        return answer.output if answer.exit_code == 0 else None
    line = [sys.executable, "-m", module, *words]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def problems_of(module: str, words: str) -> list[str]:
    """What is wrong with a command: a module without a file, a subcommand or a flag that its help does not list."""
    is_own = module.partition(".")[0] in (*PACKAGES, "tools")
    try:
        spec = find_spec(module if is_own else module.partition(".")[0])
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        return [f"python -m {module}: there is no such module"]
    if not is_own:
        return []
    flags = _FLAG.findall(words.partition(" -- ")[0])
    top = help_of(module)
    if top is None:
        return [f"python -m {module} --help fails"]
    help_text = top
    for subcommand in _subcommands(top, words):
        deeper = help_of(module, subcommand)
        if deeper is None:
            return [f"python -m {module} {subcommand}: there is no such subcommand"]
        help_text += deeper
    return [f"python -m {module}: no flag {flag}" for flag in flags if not re.search(rf"{flag}\b(?!-)", help_text)]


def _subcommands(help_text: str, words: str) -> list[str]:
    """`score` of `score RUN`, `align` and `select` of `align|select`; nothing for a command without subcommands."""
    if "COMMAND [ARGS]" not in help_text or not words or words.startswith(("-", "…")):
        return []
    return re.split(r"\|", re.split(r"[\s[]", words)[0])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_and_every_source_file_exists(page: Path) -> None:
    assert dead_links(page) + lost_files(page) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_has_its_module_subcommand_and_flags(page: Path) -> None:
    assert [problem for command in sorted(commands(text(page))) for problem in problems_of(*command)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    used = set(re.findall(r"(?:^ {4}|`|or: )make ([a-z][a-z-]*)", text(page), re.MULTILINE))
    assert used <= targets


def test_pages_are_short() -> None:
    assert 6_000 <= len((ROOT / "README.md").read_bytes()) <= 8_192
    sizes = {named(page): len(page.read_bytes()) for page in PAGES}
    assert max(sizes.values()) <= 22_000
    assert sum(sizes.values()) <= 150_000


def test_the_citation_has_what_the_format_requires_and_the_project_s_version() -> None:
    citation = text(ROOT / "CITATION.cff")
    values = dict(re.findall(r"^([a-z-]+): *(.*)$", citation, re.MULTILINE))
    assert values.keys() >= {"cff-version", "message", "title", "authors"}
    assert f'version = "{values["version"]}"' in text(ROOT / "pyproject.toml")
    assert (
        len(re.findall(r"^  - type: ", citation, re.MULTILINE))
        == len(re.findall(r"^    authors:$", citation, re.MULTILINE))
        == 3
    )


def test_what_does_not_exist_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("[a](missing.md) [b](README.md) [c](https://example.org/x) `gone.py` `jobs/suite.py`", "utf-8")
    assert dead_links(page) == ["missing.md"]
    assert lost_files(page) == ["gone.py"]
    assert commands("`python -m jobs resume RUN` and python -m venv x") == {("jobs", "resume RUN")}
    assert problems_of("jobs.nowhere", "") == ["python -m jobs.nowhere: there is no such module"]
    assert problems_of("nowhere.at.all", "") == ["python -m nowhere.at.all: there is no such module"]
    assert problems_of("jobs", "vanish RUN") == ["python -m jobs vanish: there is no such subcommand"]
    assert problems_of("jobs", "status RUN --follows") == ["python -m jobs: no flag --follows"]
    assert problems_of("jobs", "status RUN --foll") == ["python -m jobs: no flag --foll"]
    assert problems_of("jobs", "status RUN --follow") == []
