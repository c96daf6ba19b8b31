"""Runs whose models are on servers: planned by asking them, recorded without the address, resumed after they died."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.engines.served import connection
from harness.launch import main
from harness.weights.tokenizer import HFTokenizer
from jobs.run import sizing
from jobs.run.folder import RunFolder
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import FakeServer, serving
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
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft, target = pair
    run = launch(tmp_path, *SPECREASON, *on_servers(draft, target, folder))
    spec = run.spec()
    assert spec.engine.kind == "served"
    assert spec.draft is not None
    assert spec.target is not None
    assert (spec.draft.name, spec.draft.server, spec.target.server) == ("org/story", "vllm", "llama.cpp")
    assert spec.draft.fingerprint.startswith("served:org/story:")
    assert draft.url.removesuffix("/v1") not in run.spec_path.read_text()
    assert sizing.recorded_servers(run) == {
        "draft": draft.url.removesuffix("/v1"),
        "target": target.url.removesuffix("/v1"),
    }
    with reader(tmp_path / "warehouse.duckdb") as database:
        attempt = rows(database, "SELECT device, versions, engines FROM attempt", {})
        (first, *_) = list(attempt)
    assert first["device"] == "unknown server"
    assert "vllm 0.32.0" in str(first["versions"])
    assert json.loads(str(first["engines"]))["target"]["server"]["version"] == "b1-abc"
    asked = len(target.posts)
    with serving("llama.cpp", target.tokenizer) as moved:
        capsys.readouterr()
        again = launch(tmp_path, *SPECREASON, *on_servers(draft, moved, folder))
        assert again.path == run.path, "the address is no part of a run"
        assert "All 4 samples are already finished" in capsys.readouterr().out
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
    assert "does not answer: status 503" in capsys.readouterr().err
    draft.reply = healthy  # type: ignore[method-assign]
    draft.failures.clear()
    run = launch(tmp_path, *SPECREASON, *on_servers(draft, target, folder), "--concurrency", "1")
    with reader(tmp_path / "warehouse.duckdb") as database:
        counts = rows(
            database,
            "SELECT count(*) AS n, count(error) AS failed FROM sample WHERE run_id = $r",
            {"r": run.path.name},
        )
        assert [(row["n"], row["failed"]) for row in counts] == [(4, 0)]


def test_a_reward_model_on_a_server_rates_steps_beside_two_others(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path
) -> None:
    draft, target = pair
    with serving("sglang", target.tokenizer) as reward:
        named = (*on_servers(draft, target, folder), "--reward", reward.url)
        rsd = ("--method", "rsd", *COMMON, *named)
        assert "--reward.tokenizer" in refusal(*rsd)
        run = launch(tmp_path, *rsd, "--reward.tokenizer", str(folder))
        judged = [body for _, body in reward.posts if "token_ids_logprob" in body]
    spec = run.spec()
    assert spec.engine.kind == "served"
    assert spec.reward is not None
    assert (spec.reward.name, spec.reward.server) == ("org/story", "sglang")
    assert sizing.recorded_servers(run)["reward"] == reward.url.removesuffix("/v1")
    with reader(tmp_path / "warehouse.duckdb") as database:
        calls = list(rows(database, "SELECT * FROM call WHERE model = 'reward'", {}))
        [row] = rows(database, "SELECT reward_server FROM run", {})
    assert row == {"reward_server": "sglang"}
    assert 0 < len(calls) <= len(judged)


def test_no_two_servers_count_as_equal_conditions(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path
) -> None:
    _, target = pair
    named = ("--target", target.url, "--target.tokenizer", str(folder))
    first = launch(tmp_path, "--method", "vanilla", *COMMON, *named)
    second = launch(tmp_path, "--method", "vanilla", *COMMON, *named, "--tag", "again")
    with reader(tmp_path / "warehouse.duckdb") as database:
        from warehouse.comparison.manifests import latency_mismatches, read_manifests

        ids = [first.path.name, second.path.name]
        kinds = rows(database, "SELECT device_kinds FROM run_conditions", {})
        assert len({row["device_kinds"] for row in kinds}) == 2
        manifests = read_manifests(database, ids)
        assert any("unknown server" in reason for reason in latency_mismatches(*(manifests[i] for i in ids)))


def test_a_key_stands_in_no_file(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = pair
    target.key = "secret-key-7"
    named = ("--method", "vanilla", *COMMON, "--target", target.url, "--target.tokenizer", str(folder))
    assert "refuses the key: status 401; set HARNESS_TARGET_API_KEY" in refusal(*named)
    monkeypatch.setenv("HARNESS_TARGET_API_KEY", "secret-key-7")
    run = launch(tmp_path, *named)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run.events_path in files
    assert not [path for path in files if b"secret-key-7" in path.read_bytes()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "http://me:hunter2@host/v1"), "HARNESS_TARGET_API_KEY"),
        (("--target", "http://host/v1?key=hunter2"), "with ? or # would be recorded"),
        (("--target", "http:///v1"), "an address without a host"),
        (("--target", "ftp://me:hunter2@host/v1"), "--target: not an address of a server; valid: http://HOST:PORT/v1"),
        (("--draft", "localhost:8000"), "--draft: not an address of a server; valid: http://HOST:PORT/v1"),
        (("--target", "127.0.0.1:8000/v1"), "--target: not an address of a server; valid: http://HOST:PORT/v1"),
        (("--target", "http://host:99999/v1"), "valid: http://HOST:PORT/v1"),
        (("--target", "http://ho st/v1"), "a space or a control character"),
        (("--target", "http://127.0.0.1:9/v1"), "does not answer: ConnectError"),
        (("--target", "TARGET", "--target.tokenizer", "nosuch"), "--target.tokenizer nosuch: no known model"),
        (("--target", "TARGET"), "no tokenizer of that name is here: give --target.tokenizer"),
        (("--target", "TARGET", "--target.served-model", "other"), "does not serve 'other'; it serves: org/story"),
        (("--target", "TARGET", "--engine", "scripted"), "--engine scripted runs no model"),
        (("--target", "TARGET", "--target.memory", "0.5"), "--target.memory: the target's server was started"),
        (("--target", "TARGET", "--target.gpus", "0"), "the target's server was started"),
        (("--target", "TARGET", "--draft", "TARGET", "--dtype", "float32"), "--dtype float32"),
        (("--target", "TARGET", "--spec-decode", "ngram"), "--spec-decode: whether tokens are proposed"),
        (("--target.tokenizer", "demo-target"), "--target.tokenizer is for a model on a server"),
        (("--draft.served-model", "x"), "--draft.served-model is for a model on a server"),
    ],
)
def test_what_does_not_fit_a_server_is_one_line_before_anything_starts(
    pair: tuple[FakeServer, FakeServer], arguments: tuple[str, ...], message: str
) -> None:
    words = [pair[1].url if word == "TARGET" else word for word in arguments]
    said = refusal(*SPECREASON, *words)
    assert message in said
    assert "hunter2" not in said


def test_another_tokenizer_is_refused(pair: tuple[FakeServer, FakeServer], folder: Path) -> None:
    _, target = pair
    target.edits.append(lambda path, reply: {"content": "other"} if path == "/detokenize" else reply)
    said = refusal("--method", "vanilla", *COMMON, "--target", target.url, "--target.tokenizer", str(folder))
    assert "has another tokenizer" in said
    assert "--target.tokenizer" in said


def test_a_server_without_named_log_probabilities_has_a_second_way_or_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving("vllm", HFTokenizer(str(folder))) as fake:
        fake.names_tokens = False
        named = ("--method", "vanilla", *COMMON, "--target", fake.url, "--target.tokenizer", str(folder))
        main([*named, "--dry-run", "--output", str(tmp_path)], standalone_mode=False)
        said = capsys.readouterr().out
        assert "no log-probabilities of named tokens" in said
        assert "target org/story on a server of vllm" in said
        fake.most_listed = 20
        assert "start vLLM with --max-logprobs -1" in refusal(*named)


def test_log_probabilities_after_the_choice_is_restricted_are_refused(folder: Path) -> None:
    def normalized(prompt: str, labels: tuple[str, ...]) -> list[float]:
        return [1 / len(labels)] * len(labels)

    with serving("vllm", HFTokenizer(str(folder)), judge=normalized) as fake:
        named = ("--method", "vanilla", *COMMON, "--target", fake.url, "--target.tokenizer", str(folder))
        assert "--logprobs-mode" in refusal(*named)


def test_a_launch_in_a_running_event_loop_can_ask_a_server(
    pair: tuple[FakeServer, FakeServer], folder: Path, tmp_path: Path
) -> None:
    _, target = pair

    async def in_a_loop() -> None:
        named = ("--target", target.url, "--target.tokenizer", str(folder), "--dry-run", "--output", str(tmp_path))
        main(["--method", "vanilla", *COMMON, *named], standalone_mode=False)

    asyncio.run(in_a_loop())
