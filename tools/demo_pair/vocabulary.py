"""The tokenizer of the toy pair: words and digits of the stories, fixed sentences of the prompts, and every byte.

Bytes make any text encodable. Numbers are split into digits. Each sentence that the harness's prompts always contain is
a single token, so that the question for a verdict costs only a few tokens.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from pathlib import Path

from harness import prompts
from harness.engine import Tokenizer
from harness.problems.problem import Problem
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair.stories import CONCLUSION, stories

END = "<|end|>"
_CONTROLS = (END, "<|user|>", "<|assistant|>", "<think>", prompts.THINK_END)
_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)
_WORDS = re.compile(r"\d| ?[^\W\d]+(?: (?=\d))?|\n+| [^\w\s]+ |[^\w\s]+ ?|\s")
_INSERTED = re.compile(r"\x01+|(?<=\[)\d(?=\])|(?<=reply with )\d(?=\.)")
_STORIES_READ = 3000
"""Number of stories read for the words; enough to contain every word."""


def build(folder: Path) -> HFTokenizer:
    """Write the tokenizer's files into a model's folder, and return the tokenizer."""
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = {*string.printable[:95], "\n", *_words()}
    _save(folder, [*byte_pieces, *sorted(pieces)])
    pieces |= _sentences(HFTokenizer(str(folder)))
    _save(folder, [*byte_pieces, *sorted(pieces)])
    return HFTokenizer(str(folder))


def size(folder: Path) -> int:
    """Return the vocabulary size of the tokenizer in a folder."""
    from tokenizers import Tokenizer

    return int(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size())


def _save(folder: Path, pieces: Sequence[str]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    # With equal scores a text is split into as few pieces as possible; bytes are used only where nothing else fits.
    scored = [(piece, -20.0 if piece.startswith("<0x") else -1.0) for piece in pieces]
    backend = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(control, special=True, normalized=False) for control in _CONTROLS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=END,
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.save_pretrained(folder)


def _words() -> set[str]:
    words: set[str] = set()
    for story in itertools.islice(stories(0), _STORIES_READ):
        chain = "".join(story.step(number) for number in range(len(story.steps)))
        for text in (story.text, chain.replace(prompts.THINK_END, "\n"), story.conclusion):
            words.update(_WORDS.findall(text))
    return words


def _sentences(tokenizer: Tokenizer) -> set[str]:
    """Return the fixed parts of the prompts, without the inserted texts."""
    inserted = ["\x01" * (length + 1) for length in range(3)]
    problem = Problem("", "", "\x01", "")
    prompt_ids = [
        prompts.opening(tokenizer, problem)[0],
        prompts.opening(tokenizer, problem, rubric=True)[0],
        prompts.score_question(tokenizer).ids,
        prompts.step_choice_question(tokenizer, inserted).ids,
        prompts.chain_choice_question(tokenizer, problem, inserted, may_reject=True).ids,
        prompts.chain_choice_question(tokenizer, problem, inserted, may_reject=False).ids,
    ]
    controls = re.compile("|".join(map(re.escape, _CONTROLS)))
    texts = [CONCLUSION, *(part for ids in prompt_ids for part in controls.split(tokenizer.decode(ids)))]
    return {part for text in texts for part in _INSERTED.split(text) if part}
