"""The primed decode stream gives vLLM's own text, wherever a prompt is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engines import decode_stream
from harness.weights import models
from tests.harness import multibyte
from tests.requirements import require_tool

pytestmark = [pytest.mark.vllm, pytest.mark.needs_tool("vllm")]

CUT_POINTS = 2500
"""Per tokenizer; there are four."""
CONTINUED = 10


@pytest.fixture(autouse=True)
def own_stream() -> Iterator[None]:
    """Begin with vLLM's own stream, whatever an earlier test has installed."""
    decoders = module()
    before = decoders.DecodeStream
    decode_stream.uninstall()
    yield
    decoders.DecodeStream = before


def module() -> Any:
    import tokenizers.decoders

    return tokenizers.decoders


def is_installed() -> bool:
    return bool(module().DecodeStream is decode_stream.PrimedStream)


def backend(name: str, folder: Path) -> Any:
    from tokenizers import Tokenizer

    if name == "byte level":
        return multibyte.byte_level(folder)
    if name == "sentence piece":
        return multibyte.sentence_piece()
    if name == "smollm2":
        require_tool("smollm")
        return Tokenizer.from_file(str(models.smollm_folder() / "tokenizer.json"))
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
    tokenizer, decoders = backend(name, tmp_path / "model"), module()
    own_class, num_inside = decoders.DecodeStream, 0
    assert decode_stream.install() is None
    for prompt, ids in cuts(tokenizer, CUT_POINTS):
        inside = is_inside(tokenizer, prompt)
        stop = [] if inside else ["\n\n", "x"]
        primed = written(tokenizer, prompt, ids, stop)
        decoders.DecodeStream = own_class
        own = written(tokenizer, prompt, ids, stop)
        decoders.DecodeStream = decode_stream.PrimedStream
        if inside:  # vLLM's own text begins with the whole prompt
            before = whole_characters(tokenizer, prompt)
            own = [(found, text.removeprefix(before)) for found, text in own]
            num_inside += 1
        assert primed == own, (prompt, ids)
    assert 50 < num_inside < CUT_POINTS / 2


def test_behind_half_a_character_vllms_own_stream_finds_the_prompts_stop_strings(tmp_path: Path) -> None:
    tokenizer = multibyte.byte_level(tmp_path / "model")
    whole = tokenizer.encode("One step.\n\nAnother 🙂 and more", add_special_tokens=False).ids
    cut = next(i for i in range(len(whole)) if tokenizer.decode(whole[:i]).endswith("\ufffd"))
    assert any(found for found, _ in written(tokenizer, whole[:cut], whole[cut:], ["\n\n"])), "the fault is gone"
    assert decode_stream.install() is None
    rest = written(tokenizer, whole[:cut], whole[cut:], ["\n\n"])
    assert not any(found for found, _ in rest)
    assert rest[-1][1] == "🙂 and more"


def test_a_prompt_that_ends_in_invalid_bytes_costs_no_more_than_another(tmp_path: Path) -> None:
    tokenizer = multibyte.byte_level(tmp_path / "model")
    byte = tokenizer.encode("🙂", add_special_tokens=False).ids[-1]
    text = tokenizer.encode("a\n\n", add_special_tokens=False).ids
    assert decode_stream.install() is None
    assert written(tokenizer, text + [byte] * 300, text, ["\n\n"])[-1] == ("\n\n", "a\n\n")


def test_a_decoder_that_is_not_known_decodes_the_whole_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import decoders

    tokenizer = multibyte.byte_level(tmp_path / "model")
    tokenizer.decoder = decoders.CTC()
    assert decode_stream.install() is None
    primed, original = [], decode_stream.PrimedStream.original

    def watched(ids: Any = None, skip_special_tokens: bool = False) -> Any:
        primed.append(ids)
        return original(ids=ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(decode_stream.PrimedStream, "original", staticmethod(watched))
    written(tokenizer, list(range(40, 300)), [50])
    assert primed == [list(range(40, 300))]


def test_an_unknown_version_of_vllm_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_stream, "_KNOWN_DETOKENIZERS", {"0" * 64: "0.1"})
    notice = decode_stream.install()
    assert notice is not None
    assert "is not known here (known: 0.1)" in notice
    assert not is_installed()
