"""Wrong inputs as a user types them: each gets one line that says what is wrong, with exit code 2, and writes nothing.

What one module refuses is tested beside that module; here are whole commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.engines.served import discovery
from harness.launch import main
from harness.problems import hub
from harness.weights.tokenizer import HFTokenizer
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import FakeServer, serving
from tests.own_methods import confident, no_methods

__all__ = ["no_methods"]
pytestmark = pytest.mark.usefixtures("no_methods")

GOOD = [{"problem": f"What is {i} + 1?", "answer": i + 1} for i in range(3)]
LINES = "\n".join(map(json.dumps, GOOD)) + "\n"
METHOD = confident()


def files() -> dict[str, str | bytes]:
    """Everything that a command names, by name."""
    return {
        "my.jsonl": LINES,
        "utf16.jsonl": LINES.encode("utf-16"),
        "escapes.jsonl": json.dumps({"pro\x1b[31mblem\n": "q", **{f"f{i}": 1 for i in range(3000)}}),
        "semicolons.csv": "problem;answer\na;1\n",
        "title.toml": 'file = "my.jsonl"\ntitle = "a\\u001b[31mb"',
        "step.toml": "[score]\nquestion = 'About {step}?'",
        "long.toml": "[equivalence]\nsame = 'the very same'\ndifferent = 'no'",
        "ok.py": METHOD,
        "run.py": METHOD.replace("__call__", "run"),
        "nul.py": b"x = '\x00'\n",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong")
    for name, content in files().items():
        (path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    save_tokenizer(path / "tok")
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[FakeServer]:
    with serving("vllm", HFTokenizer(str(folder / "tok"))) as fake:
        yield fake


def typed(words: str, **addresses: str) -> Result:
    """Run a command, by its words after `harness.launch`; it goes no further than a dry run."""
    arguments = [addresses.get(word, word) for word in words.split()]
    return CliRunner().invoke(main, [*arguments, "--dry-run"], env={"COLUMNS": "40"})


def assert_refused(result: Result, message: str, folder: Path) -> None:
    assert result.exit_code == 2, result.output
    [line] = result.output.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert line.isprintable()
    assert len(line) < 1500
    assert not (folder / "runs").exists()


DATA = "--method vanilla --engine scripted --dataset "
PAIR = "--dataset demo --limit 2 --cluster local --draft demo-draft --target demo-target "
VLLM = PAIR + "--engine vllm --token-budget 512 "
OWN = "--dataset demo --limit 2 --engine scripted --method "
SERVED = "--method vanilla --dataset demo --limit 2 --cluster local --token-budget 600 --target "
WRONG = [
    (DATA + "utf16.jsonl", "utf16.jsonl, line 1: 'utf-8' codec can't decode byte 0xff"),
    (DATA + "escapes.jsonl", "line 1: no column 'problem'; found: "),
    (DATA + "semicolons.csv", "line 2: no column 'problem'; found: problem;answer; set --columns problem="),
    (DATA + "title.toml", "title.toml: title: contains a control character"),
    (DATA + f"{'a' * 5000}.jsonl", "no such file"),
    (OWN + "specreason --prompts step.toml", "score.question: unknown placeholder {step}; valid: none"),
    ("--method lookahead --prompts long.toml " + VLLM, "for the target demo-target, the labels must be distinct"),
    (OWN + "ok.py", "--method ok.py: no class given; write ok.py:CLASS"),
    (OWN + "run.py:Confident", "has no `async def __call__`; a method is"),
    (OWN + "nul.py:X", "nul.py:X: cannot be imported: SyntaxError: source code"),
    (OWN + "ok.py:Confident --step-tokens x", "Invalid value for '--step-tokens': 'x' is not a valid integer"),
    (OWN + "rsd --delta 2", "--delta must be from 0 to 1, not 2"),
    (OWN + "vanilla --samples 1000000000", "--samples 1000000000: Input should be less than or equal to 100000"),
    (
        SERVED + "SERVER --target.tokenizer my.jsonl",
        "--target.tokenizer my.jsonl: expected a known model, a hub id or a folder with a tokenizer",
    ),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_a_wrong_command_gets_one_line_and_exit_code_2(
    words: str, message: str, folder: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(hub, "is_offline", lambda: True)
    assert_refused(typed(words, SERVER=server.url), message, folder)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("slow", "0.4"),
        ("garbage", "JSON"),
        (401, "HARNESS_TARGET_API_KEY"),
        (500, "500"),
        ("reset", "does not respond: "),
    ],
)
def test_a_server_that_fails_on_the_first_requests_is_one_line(
    failure: int | str, message: str, folder: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    if failure == "slow":
        monkeypatch.setattr(discovery, "CHECK_SECONDS", 0.4)
    monkeypatch.setattr(server, "failures", [failure] * 10)
    assert_refused(typed(SERVED + "SERVER --target.tokenizer tok", SERVER=server.url), message, folder)
