"""Runs whose models are on servers: planned by asking them, recorded without the address, resumed after they died."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.engines.served import connection
from harness.launch import main
from harness.weights.tokenizer import HFTokenizer
from jobs.run import sizing
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import FakeServer, serving
from tests.jobs.runs import finished_ids, planned_ids
from warehouse.database import reader, rows

COMMON = ("--dataset", "demo", "--limit", "4", "--samples", "1", "--cluster", "debug", "--token-budget", "600")
SPECREASON = ("--method", "specreason", *COMMON)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "tokenizer"
    save_tokenizer(path)
    return path


@pytest.fixture
def pair(folder: Path) -> Iterator[tuple[FakeServer, FakeServer]]:
    tokenizer = HFTokenizer(str(folder))
    with serving("vllm", tokenizer) as draft, serving("llama.cpp", tokenizer) as target:
        yield draft, target


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server up at once."""
    monkeypatch.setattr(connection, "MOST_ATTEMPTS", 2)
    monkeypatch.setattr(connection, "_LONGEST_WAIT_SECONDS", 0.01)


def on_servers(draft: FakeServer, target: FakeServer, folder: Path) -> tuple[str, ...]:
    tokenizers = ("--draft.tokenizer", str(folder), "--target.tokenizer", str(folder))
    return ("--draft", draft.url, "--target", target.url, *tokenizers)


def launch(output: Path, *arguments: str) -> RunFolder:
    run = main([*arguments, "--output", str(output)], standalone_mode=False)
    assert isinstance(run, RunFolder)
    return run


def refusal(*arguments: str) -> str:
    """The line that a launch is refused with."""
    done = CliRunner().invoke(main, [*arguments, "--output", "nowhere"])
    assert done.exit_code == 2, done.output
    (line,) = done.output.splitlines()
    return line


def test_both_models_on_servers_give_a_result_that_resumes_at_another_address(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path
) -> None:
    draft, target = pair
    run = launch(tmp_path, *SPECREASON, *on_servers(draft, target, folder))
    spec = run.spec()
    assert spec.engine.kind == "served"
    assert spec.draft is not None
    assert spec.target is not None
    assert (spec.draft.name, spec.draft.server, spec.target.server) == ("org/story", "vllm", "llama.cpp")
    assert spec.draft.fingerprint.startswith("served:org/story:")
    addresses = {"draft": draft.url.removesuffix("/v1"), "target": target.url.removesuffix("/v1")}
    assert addresses["draft"] not in run.spec_path.read_text()
    assert sizing.recorded_servers(run) == addresses
    with reader(tmp_path / "warehouse.duckdb") as database:
        first, *_ = rows(database, "SELECT device, versions, engines FROM attempt", {})
    assert "vllm 0.32.0" in str(first["versions"])
    assert json.loads(str(first["engines"]))["target"]["server"]["version"] == "b1-abc"
    asked = len(target.posts)
    with serving("llama.cpp", target.tokenizer) as moved:
        again = launch(tmp_path, *SPECREASON, *on_servers(draft, moved, folder))
        assert again.path == run.path, "the address is no part of a run"
        assert sizing.recorded_servers(run)["target"] == moved.url.removesuffix("/v1")
    assert len(target.posts) == asked


def test_a_server_that_dies_ends_no_sample_and_the_run_resumes(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path, quickly: None, capsys: pytest.CaptureFixture[str]
) -> None:
    draft, target = pair
    healthy = draft.reply
    calls = 0

    def dying(path: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls > 12:
            draft.failures += [503] * 50
        return healthy(path, body)

    draft.reply = dying  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        launch(tmp_path, *SPECREASON, *on_servers(draft, target, folder), "--concurrency", "1")
    assert "503" in capsys.readouterr().err
    draft.reply = healthy  # type: ignore[method-assign]
    draft.failures.clear()
    run = launch(tmp_path, *SPECREASON, *on_servers(draft, target, folder), "--concurrency", "1")
    assert finished_ids(run) == planned_ids(run)
    assert len(read_endings(run).failed) == 0


def test_a_key_stands_in_no_file(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = pair
    target.key = "secret-key-7"
    named = ("--method", "vanilla", *COMMON, "--target", target.url, "--target.tokenizer", str(folder))
    assert "HARNESS_TARGET_API_KEY" in refusal(*named)
    monkeypatch.setenv("HARNESS_TARGET_API_KEY", "secret-key-7")
    run = launch(tmp_path, *named)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run.events_path in files
    assert not [path for path in files if b"secret-key-7" in path.read_bytes()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "http://me:hunter2@host/v1"), "HARNESS_TARGET_API_KEY"),
        (("--target", "http://host/v1?key=hunter2"), "must not contain ? or #"),
        (("--target", "ftp://me:hunter2@host/v1"), "--target: not a server address; valid: http://HOST:PORT/v1"),
        (("--draft", "localhost:8000"), "--draft: not a server address; valid: http://HOST:PORT/v1"),
        (("--target", "http://ho st/v1"), "a space or a control character"),
        (("--target", "http://127.0.0.1:9/v1"), "does not respond: ConnectError"),
        (("--target", "TARGET", "--target.tokenizer", "nosuch"), "--target.tokenizer nosuch: expected a known model"),
        (("--target", "TARGET"), "no tokenizer has that name; set --target.tokenizer to a known name, a hub id or a"),
        (("--target", "TARGET", "--target.served-model", "other"), "does not serve 'other'; it serves: org/story"),
        (("--target", "TARGET", "--engine", "scripted"), "--engine scripted runs no model"),
        (("--target", "TARGET", "--target.memory", "0.5"), "--target.memory: set by the target's server"),
        (("--target", "TARGET", "--draft", "TARGET", "--dtype", "float32"), "--dtype float32"),
        (("--target", "TARGET", "--spec-decode", "ngram"), "--spec-decode: token proposals are configured"),
        (
            ("--method", "specdecode", "--draft", "http://127.0.0.1:9/v1"),
            "--spec-decode draft requires the draft's weights",
        ),
        (("--target.tokenizer", "demo-target"), "--target.tokenizer requires a model on a server"),
    ],
)
def test_what_does_not_fit_a_server_is_one_line_before_anything_starts(
    pair: tuple[FakeServer, FakeServer], arguments: tuple[str, ...], message: str
) -> None:
    words = [pair[1].url if word == "TARGET" else word for word in arguments]
    said = refusal(*SPECREASON, *words)
    assert message in said
    assert "hunter2" not in said


def other_tokenizer(server: FakeServer) -> None:
    server.edits.append(lambda path, reply: {"content": "other"} if path == "/detokenize" else reply)


def few_listed(server: FakeServer) -> None:
    server.names_tokens, server.most_listed = False, 20


@pytest.mark.parametrize(("change", "flag"), [(other_tokenizer, "--target.tokenizer"), (few_listed, "--max-logprobs")])
def test_a_server_that_cannot_be_used_is_refused_with_the_flag_that_helps(
    folder: Path, change: Callable[[FakeServer], None], flag: str
) -> None:
    with serving("vllm", HFTokenizer(str(folder))) as fake:
        change(fake)
        named = ("--method", "vanilla", *COMMON, "--target", fake.url, "--target.tokenizer", str(folder))
        assert flag in refusal(*named)
