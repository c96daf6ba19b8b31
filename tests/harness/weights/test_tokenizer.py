"""Rules of the tokenizers and chat templates, on a tokenizer made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from harness.engine import Tokenizer
from harness.engines.scripted import ByteTokenizer
from harness.weights.tokenizer import HFTokenizer, verdict_options
from tests.harness.conftest import CHAT_TEMPLATE, THINK_TEMPLATE, save_tokenizer

THINK = ("<think>", "</think>", "<｜User｜>")
BOS, IM_START, IM_END = 0, 1, 2


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return _made(tmp_path_factory.mktemp("plain"), CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return _made(tmp_path_factory.mktemp("thinking"), THINK_TEMPLATE, THINK)


def _made(folder: Path, template: str | None, added: tuple[str, ...] = ()) -> HFTokenizer:
    save_tokenizer(folder, template=template, added=added)
    return HFTokenizer(str(folder))


@pytest.mark.parametrize("text", ["<|im_end|>\n<|im_start|>user", "a<|bos|>", "x<｜User｜><｜User｜>y"])
def test_control_tokens_in_text_stay_plain_text_and_think_tags_keep_their_meaning(
    thinking: HFTokenizer, text: str
) -> None:
    control = {BOS, IM_START, IM_END, *thinking.encode_template("<｜User｜>")}
    tags = thinking.encode_template("<think></think>")
    assert len(tags) == 2
    ids = thinking.encode(f"<think>{text}</think>")
    assert not control & set(ids)
    assert [i for i in ids if i in tags] == tags
    assert thinking.decode(ids) == f"<think>{text}</think>"


@pytest.mark.parametrize("text", ["", "a  b\n\n c .", "2 + 2 = 4 , isn't it ?", "naïve 数学 🙂", "\\boxed{7}"])
def test_decoding_gives_the_text_back_uncleaned(plain: HFTokenizer, text: str) -> None:
    assert plain.decode(plain.encode(text)) == text


def test_a_template_decides_what_surrounds_a_question_and_the_vocabulary_the_fingerprint(
    tmp_path: Path, plain: HFTokenizer, thinking: HFTokenizer
) -> None:
    assert plain.encode_template(plain.open_reply("Hi")).count(BOS) == 1
    assert BOS not in plain.encode_template(plain.ask_again("Hi")) + plain.encode("Hi")
    bare = _made(tmp_path / "bare", None)
    assert bare.open_reply("Hi").endswith("User: Hi\n\nAssistant: ")
    assert bare.ask_again("Hi") == "\n\nUser: Hi\n\nAssistant: "
    assert not bare.thinks
    assert plain.fingerprint == bare.fingerprint != thinking.fingerprint


def test_options_are_one_distinct_token_each_behind_a_common_prefix(plain: HFTokenizer) -> None:
    prefix, options = verdict_options(plain, "Score:", "0123456789")
    assert len(set(options)) == 10
    assert plain.decode([*prefix, options[7]]) == "Score: 7"


@pytest.mark.parametrize("labels", [("1", "10"), ("all", "none of these"), ("A", "A")])
def test_options_that_one_token_cannot_tell_apart_are_refused(plain: HFTokenizer, labels: Sequence[str]) -> None:
    with pytest.raises(ValueError, match=labels[0]):
        verdict_options(plain, "Answer:", labels)


class _NoSpaceTokenizer(ByteTokenizer):
    """Puts a space and the letter behind it into tokens that differ before the last one."""

    def encode_template(self, text: str) -> list[int]:
        word, space, label = text.rpartition(" ")
        return super().encode_template(word) + ([300 + ord(label), 7] if space else super().encode_template(label))


def test_options_stand_without_a_space_where_one_would_split_them() -> None:
    prefix, options = verdict_options(cast(Tokenizer, _NoSpaceTokenizer()), "Answer:", "AB")
    assert (prefix, options) == (list(b"Answer:"), [65, 66])
