"""What the project changes in vLLM: the decode stream."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers.decoders

from harness.engines import vllm_patches
from harness.weights import models
from tests.harness import multibyte
from tests.requirements import require_tool
from tools.smollm import smollm_folder

pytestmark = pytest.mark.needs_tool("vllm")


CUT_POINTS = 300
"""Per tokenizer; there are four."""
CONTINUED = 10


DECODERS: Any = tokenizers.decoders


@pytest.fixture(autouse=True)
def own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with vLLM's own stream, and leave behind what an earlier test has installed."""
    if (original := vllm_patches.PrimedStream.original) is not None:
        monkeypatch.setattr(DECODERS, "DecodeStream", original)
    monkeypatch.setattr(DECODERS, "DecodeStream", DECODERS.DecodeStream)  # put back
    monkeypatch.setattr(vllm_patches.PrimedStream, "original", None)


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
    assert vllm_patches.prime_decode_streams() is None
    for prompt, ids in cuts(tokenizer, CUT_POINTS):
        inside = is_inside(tokenizer, prompt)
        stop = [] if inside else ["\n\n", "x"]
        primed = written(tokenizer, prompt, ids, stop)
        DECODERS.DecodeStream = own_class
        own = written(tokenizer, prompt, ids, stop)
        DECODERS.DecodeStream = vllm_patches.PrimedStream
        if inside:  # vLLM's own text begins with the whole prompt
            before = whole_characters(tokenizer, prompt)
            own = [(found, text.removeprefix(before)) for found, text in own]
            num_inside += 1
        assert primed == own, (prompt, ids)
    assert 5 < num_inside < CUT_POINTS / 2


def test_an_unknown_version_of_vllm_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_patches, "_KNOWN_DETOKENIZERS", {"0" * 64: "0.1"})
    assert "(known: 0.1)" in str(vllm_patches.prime_decode_streams())
    assert DECODERS.DecodeStream is not vllm_patches.PrimedStream
