"""What the project changes in vLLM: how processes wait, products that are prepared, and the decode stream."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers.decoders

from harness.engines import vllm_plugin
from harness.engines.processes import MARK
from harness.weights import models
from tests.harness import multibyte
from tests.requirements import require_tool
from tools.smollm import smollm_folder

pytestmark = pytest.mark.needs_tool("vllm")


@pytest.fixture
def condition(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """vLLM's class, with its own way of waiting again after the test."""
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    own: type[Any] = SpinCondition
    monkeypatch.setattr(own, "wait", own.wait)
    return own


def _reader(idle_seconds: float) -> SimpleNamespace:
    """What a condition of a reader knows that read its last message this long ago, and gets none."""
    polled: list[int | None] = []

    def poll(timeout: int | None) -> list[Any]:
        polled.append(timeout)
        return []

    return SimpleNamespace(
        is_reader=True, busy_loop_s=1.0, last_read=time.monotonic() - idle_seconds, polled=polled,
        poller=SimpleNamespace(poll=poll), read_cancel_socket=None, local_notify_socket=None,
    )  # fmt: skip


def test_a_process_asks_without_a_pause_right_after_a_batch_and_then_rarely(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    vllm_plugin.wait_politely()
    monkeypatch.setattr(time, "sleep", paused.append)
    condition.wait(_reader(-1.0), None)
    assert not paused
    reader = _reader(0.1)
    condition.wait(reader, None)
    assert len(paused) == 1
    assert not reader.polled


@pytest.mark.parametrize(("timeout", "waits"), [(None, 100), (7, 7)])
def test_a_process_that_waits_for_long_sleeps_and_looks_again_where_its_message_was_lost(
    condition: type[Any], timeout: int | None, waits: int
) -> None:
    vllm_plugin.wait_politely()
    reader = _reader(5.0)
    condition.wait(reader, timeout)
    assert reader.polled == [waits]


@pytest.mark.parametrize(
    ("worker", "variable", "changes"),
    [
        ("1-abc.0", "1", True),
        ("1-abc.0", None, False),
        (f"{os.getpid()}-abc.0", "1", False),
        (None, "1", False),
    ],
    ids=["engine", "no variable", "worker itself", "no engine"],
)
def test_only_processes_of_an_engine_are_changed_and_only_where_the_environment_says_so(
    condition: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    worker: str | None,
    variable: str | None,
    changes: bool,
) -> None:
    for name, value in ((MARK, worker), (vllm_plugin.POLITE_WAIT, variable)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    before = condition.wait
    vllm_plugin.install()
    assert (condition.wait is not before) == changes


CUT_POINTS = 300
"""Per tokenizer; there are four."""
CONTINUED = 10


DECODERS: Any = tokenizers.decoders


@pytest.fixture(autouse=True)
def own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with vLLM's own stream, and leave behind what an earlier test has installed."""
    if (original := vllm_plugin.PrimedStream.original) is not None:
        monkeypatch.setattr(DECODERS, "DecodeStream", original)
    monkeypatch.setattr(DECODERS, "DecodeStream", DECODERS.DecodeStream)  # put back
    monkeypatch.setattr(vllm_plugin.PrimedStream, "original", None)


def is_installed() -> bool:
    return DECODERS.DecodeStream is vllm_plugin.PrimedStream


def backend(name: str, folder: Path) -> Any:
    from tokenizers import Tokenizer

    if name == "byte level":
        return multibyte.byte_level(folder)
    if name == "sentence piece":
        return multibyte.sentence_piece()
    if name == "smollm2":
        require_tool("smollm")
        return Tokenizer.from_file(str(smollm_folder() / "tokenizer.json"))
    return Tokenizer.from_file(str(Path(models.resolve("demo-target").path_or_hub_id) / "tokenizer.json"))


def detokenizer(tokenizer: Any, prompt: Sequence[int], stop: Sequence[str] = ()) -> Any:
    """vLLM's own detokenizer of a new request."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

    params = SamplingParams(
        stop=list(stop),
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
    )
    request: Any = SimpleNamespace(request_id="test", prompt_token_ids=list(prompt), sampling_params=params)
    return FastIncrementalDetokenizer(SimpleNamespace(_tokenizer=tokenizer), request)


def written(
    tokenizer: Any, prompt: Sequence[int], ids: Sequence[int], stop: Sequence[str] = ()
) -> list[tuple[Any, str]]:
    """The stop string and the whole text so far, after each of the ids."""
    own = detokenizer(tokenizer, prompt, stop)
    return [(own.update([i], False), own.output_text) for i in ids]


def is_inside(tokenizer: Any, prompt: Sequence[int]) -> bool:
    return bool(tokenizer.decode(prompt, skip_special_tokens=False).endswith("\ufffd"))


def whole_characters(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The text of the longest beginning of a prompt that does not end in an unfinished character."""
    end, text = len(prompt), tokenizer.decode(prompt, skip_special_tokens=False)
    while text.endswith("\ufffd"):
        end -= 1
        text = tokenizer.decode(prompt[:end], skip_special_tokens=False)
    return str(text)


def cuts(tokenizer: Any, number: int) -> Iterator[tuple[list[int], list[int]]]:
    """Prompts and what follows them: real text cut anywhere, in every tenth case between characters with random ids."""
    ids = tokenizer.encode(multibyte.TEXT, add_special_tokens=False).ids
    rng = random.Random(7)
    starts = [i for i in range(len(ids)) if not tokenizer.decode(ids[i:][:8]).startswith("\ufffd")]
    for i in range(number):
        start, end = rng.choice(starts), rng.randrange(1, len(ids))
        prompt = (ids[start:] if i % 2 else []) + ids[:end]
        follows = ids[end:][:CONTINUED]
        if not follows or (i % 10 == 0 and not is_inside(tokenizer, prompt)):
            follows = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(CONTINUED)]
        yield prompt, follows


@pytest.mark.parametrize("name", ["bundled pair", "byte level", "sentence piece", "smollm2"])
def test_the_text_is_vllms_own_at_every_cut_point(name: str, tmp_path: Path) -> None:
    tokenizer = backend(name, tmp_path / "model")
    own_class, num_inside = DECODERS.DecodeStream, 0
    assert vllm_plugin.prime_decode_streams() is None
    for prompt, ids in cuts(tokenizer, CUT_POINTS):
        inside = is_inside(tokenizer, prompt)
        stop = [] if inside else ["\n\n", "x"]
        primed = written(tokenizer, prompt, ids, stop)
        DECODERS.DecodeStream = own_class
        own = written(tokenizer, prompt, ids, stop)
        DECODERS.DecodeStream = vllm_plugin.PrimedStream
        if inside:  # vLLM's own text begins with the whole prompt
            before = whole_characters(tokenizer, prompt)
            own = [(found, text.removeprefix(before)) for found, text in own]
            num_inside += 1
        assert primed == own, (prompt, ids)
    assert 5 < num_inside < CUT_POINTS / 2


def test_an_unknown_version_of_vllm_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_plugin, "_KNOWN_DETOKENIZERS", {"0" * 64: "0.1"})
    assert "(known: 0.1)" in str(vllm_plugin.prime_decode_streams())
    assert not is_installed()
