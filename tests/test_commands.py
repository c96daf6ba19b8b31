"""What holds for every command: `-h`, `--version`, help without arguments, headings over many options."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.methods import METHODS, parameter_fields
from harness.settings.declaration import settings_of
from harness.settings.roles import ROLE_SETTINGS
from harness.training.tuning import Settings
from tests.import_graph import module_files
from tests.test_imports import PACKAGES, ROOT

FILES = module_files(ROOT, PACKAGES)
COMMANDS = sorted(
    name
    for name, path in FILES.items()
    if "@click." in (text := path.read_text(encoding="utf-8")) and 'if __name__ == "__main__"' in text
)


def command(module: str) -> click.Command:
    if FILES[module].name == "__init__.py":
        module += ".__main__"
    main = importlib.import_module(module).main
    assert isinstance(main, click.Command)
    return main


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_has_a_short_form_of_help_and_a_version(module: str) -> None:
    short, long, version = (CliRunner().invoke(command(module), [flag]) for flag in ("-h", "--help", "--version"))
    assert (short.exit_code, long.exit_code, version.exit_code) == (0, 0, 0)
    assert short.output == long.output
    assert short.output.splitlines()[2].strip()[0].isupper()
    assert version.output.startswith("speculative-reasoning-harness ")


@pytest.mark.parametrize("module", COMMANDS)
def test_without_arguments_a_command_prints_its_help_or_names_in_one_line_what_is_missing(module: str) -> None:
    main = command(module)
    if isinstance(main, click.Group) and not main.invoke_without_command:
        result = CliRunner().invoke(main, [])
        assert (result.exit_code, result.output[:7], result.stderr) == (0, "Usage: ", "")
    elif any(parameter.required for parameter in main.params):
        result = CliRunner().invoke(main, [])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert result.stderr.startswith("error: Missing ")


def test_plain_help_lists_what_people_use_and_help_all_every_flag_by_its_new_spelling() -> None:
    plain, every = (CliRunner().invoke(command("harness.launch"), [word]).output for word in ("--help", "--help-all"))
    assert "--help-all" in plain
    assert "--target NAME" in plain
    assert "--target.top-k" not in plain
    assert all(one.spelled in every for one in ROLE_SETTINGS.values())
    assert "target-top-k" not in every


@pytest.mark.parametrize("method", METHODS)
def test_the_help_of_a_launch_explains_every_hyper_parameter(method: str) -> None:
    output = CliRunner().invoke(command("harness.launch"), ["--method", method, "--help"]).output
    words = "".join(output.split())  # click also breaks a line behind a hyphen, where no space belongs
    for parameter in parameter_fields(method):
        assert "".join(parameter.help.split()) in words, parameter.name


@pytest.mark.parametrize("module", COMMANDS)
def test_the_examples_of_the_help_fit_80_columns_and_every_option_is_explained(module: str) -> None:
    main = command(module)
    subcommands = main.commands.items() if isinstance(main, click.Group) else ()
    for words, subcommand in [([], main), *(([name], subcommand) for name, subcommand in subcommands)]:
        text = CliRunner(env={"COLUMNS": "80"}).invoke(command(module), [*words, "--help"]).output
        assert [line for line in text.splitlines() if len(line) > 80 and "python" in line] == [], words
        assert len(text.splitlines()) <= (60 if module == "harness.launch" else 50), words
        assert "[default: False]" not in " ".join(text.split()), words
        options = [parameter for parameter in subcommand.params if isinstance(parameter, click.Option)]
        assert [o.name for o in options if not o.hidden and (o.help or "[")[0] == "["] == [], words
        arguments = [parameter for parameter in subcommand.params if isinstance(parameter, click.Argument)]
        for name in (argument.make_metavar(click.Context(subcommand)) for argument in arguments):
            assert f"\n  {name}\n" not in text, words


@pytest.mark.parametrize("task", ["align", "select"])
def test_the_help_of_a_training_explains_every_setting(task: str) -> None:
    output = CliRunner().invoke(command("harness.train"), [task, "--help-all"], env={"COLUMNS": "500"}).output
    words = " ".join(output.split())
    assert "[OPTIONS] [-- LAUNCH_FLAGS…]" in words
    for setting in settings_of(Settings).values():
        assert setting.flag.help in words


def test_help_and_lists_read_no_method_and_import_nothing_that_takes_long() -> None:
    heavy = {"duckdb", "numpy", "pyarrow", "scipy", "pandas", "matplotlib", "torch", "transformers", "vllm", "sympy"}
    program = (
        "import importlib, sys; from harness.launch import main\n"
        "def run(*words):\n"
        "    try: main(words)\n"
        "    except SystemExit as stop: assert not stop.code, stop.code\n"
        "run('--help')\n"
        "assert not (read := {'pydantic', 'harness.methods', 'harness.problems'} & set(sys.modules)), read\n"
        "for name in ('methods', 'models', 'datasets'): run('--list', name)\n"
        f"for name in {COMMANDS!r}:\n"
        f"    assert not (found := {heavy!r} & set(sys.modules)), (name, found)\n"
        "    importlib.import_module(name)\n"
        f"assert not (found := {heavy!r} & set(sys.modules)), found\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "words",
    [
        ["harness.reproduce", "own.toml", "-o", "x.foo"],
        ["jobs", "nightly", "--suite", "nightly.toml", "--junit", "x.foo"],
        ["jobs", "probe", "RUN", "-o", "x.foo"],
        ["warehouse.compare", "RUN", "RUN", "-o", "x.foo"],
        ["warehouse.export", "RUN", "-o", "x.foo"],
        ["warehouse.query", "SELECT 1", "-o", "x.foo"],
        ["warehouse.nightly", "-o", "x.foo"],
        ["warehouse.report", "RUN", "-o", "x.foo"],
    ],
    ids=lambda words: words[0],
)
def test_a_file_with_an_unknown_ending_is_refused_before_any_work(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, *arguments = words
    ended = CliRunner().invoke(command(module), arguments)
    assert ended.exit_code == 2, ended.output
    [line] = ended.stderr.splitlines()
    assert "x.foo" in line
    assert re.search(r"\.(?:json|csv|md|xml|eval|html|parquet)\b", line), "it says what is valid"
    assert not list(tmp_path.iterdir())
