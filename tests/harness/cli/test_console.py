"""The console script: the modules' commands under one name, also in a folder with packages of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import console, program
from jobs.__main__ import main as jobs
from tests.test_commands import COMMANDS as MODULES
from tests.test_imports import ROOT

CALLED = {called: name for commands in console.COMMANDS.values() for name, (called, _) in commands.items()}


def called(*words: str) -> Result:
    return CliRunner().invoke(console.main, list(words), prog_name=program.PROGRAM)


def test_every_command_has_a_name_in_the_program() -> None:
    modules = {name.removesuffix(".__main__") for name in MODULES} - {"jobs"}
    assert modules <= set(CALLED), "add it to COMMANDS"
    assert {f"jobs {name}" for name in jobs.commands} <= set(CALLED), "add it to COMMANDS"


@pytest.mark.parametrize(("line", "name"), CALLED.items())
def test_a_command_is_the_modules_under_the_programs_name(line: str, name: str) -> None:
    assert program.name_of(line) == name
    result = called(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {program.PROGRAM} {name} ")
    assert f"python-m{line.replace(' ', '')}" not in "".join(result.output.split())


def test_the_help_and_the_version_of_the_program_need_no_command() -> None:
    code = (
        "import sys; from harness.cli.console import main\n"
        "for word in ('--help', '-h', '--version'):\n"
        "    try: main([word])\n"
        "    except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert not {'jobs', 'warehouse', 'grading', 'pydantic', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert all(name in done.stdout for name in CALLED.values())


def test_an_error_names_commands_as_they_were_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = called("query", "SELECT 1")
    assert f"{program.PROGRAM} load RUNS" in result.stderr
    monkeypatch.setenv(program.VARIABLE, program.PROGRAM)
    assert program.typed("jobs status") == f"{program.PROGRAM} status"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("stat", {"plain,status"}),
        ("launch --cluster sl", {"plain,slurm"}),
        ("launch --method specr", {"plain,specreason", "file,specr"}),
        ("launch --target demo-t", {"plain,demo-target", "file,demo-t"}),
        ("status demo", {"plain,demo-vanilla-1"}),
        ("compare demo", {"plain,demo-vanilla-1"}),
    ],
)
def test_the_shell_completes_commands_values_runs_and_names_that_files_may_stand_for(
    words: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "demo-vanilla-1").mkdir(parents=True)
    (tmp_path / "runs" / "demo-vanilla-1" / "events.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMP_WORDS", f"{program.PROGRAM} {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    monkeypatch.setenv("_SPECULATIVE_HARNESS_COMPLETE", "bash_complete")
    assert set(called().stdout.splitlines()) == expected


def test_it_runs_in_a_folder_with_packages_of_the_same_names(tmp_path: Path) -> None:
    for name in ("harness", "jobs", "grading", "warehouse"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a package of the user')")
    script = tmp_path / "bin" / program.PROGRAM
    script.parent.mkdir()
    script.write_text("from harness.cli.console import run\nif __name__ == '__main__':\n    run()\n")
    words = "launch --method vanilla --dataset demo --engine scripted --limit 1 --samples 1 --cluster local"
    command, variables = [sys.executable, str(script), *words.split()], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{program.PROGRAM} report" in done.stdout
