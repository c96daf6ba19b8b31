"""No step ends inside a character; whether a step ends the thought, the chain, or neither; who writes the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from grading import Gold
from grading.grade import grade
from harness.chain.chain_ending import ending, has_boxed, num_cut
from harness.engine import Completion, Finish, Generation, Sampling, Timing
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.trace import Step, StepRole, Trace
from harness.weights.tokenizer import HFTokenizer
from jobs.finished.grading import _submission
from jobs.run.trace_files import SampleRow
from tests.harness import multibyte
from tests.harness.conftest import save_tokenizer
from tests.harness.scripts import OtherTokenizer, Script, solve, solve_pair


def step(text: str, role: StepRole = "draft", finish: Finish = "stop") -> Step:
    return Step("draft", role, text, 1, (1,), finish)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{5}", True),
        ("\\boxed{\\frac{1}{2}", False),
        ("\\boxed 5", False),
        ("\\boxed{1} or \\boxed{2", False),  # the last one is still being written
        ("\\boxed{1 and \\boxed{2}", True),
    ],
)
def test_a_box_has_balanced_braces(text: str, expected: bool) -> None:
    assert has_boxed(text) is expected


@pytest.mark.parametrize(
    ("ended", "in_thought", "ends_thought", "ends_chain"),
    [
        (step("We add.\n\n", finish="length"), True, False, False),
        (step("So it is 5.</think>"), True, True, False),
        (step("So it is 5.", finish="eos"), True, True, False),
        (step("So it is 5.", "rethink", "length"), True, True, True),
        (step("Let me think", "guidance", "length"), True, False, False),
        (step("so \\boxed{5}\n\n"), False, False, True),
        (step("so \\boxed{5}\n\n"), True, False, False),  # an intermediate result
        (step("so \\boxed{5}</think>\n\n"), True, True, False),  # the box is inside the thought
        (step("so</think>\n\nIt is \\boxed{5}."), True, True, True),
        (step("It is 5.", finish="eos"), False, True, True),
        (step("so</think>\n\nIt is 5.", finish="eos"), True, True, True),
        (step("so</think>\n\n", finish="eos"), True, True, False),  # the answer is still missing
        (step("", finish="eos"), False, True, True),
        (step("5", "answer", "length"), True, True, True),
        (step("no box", "chain", "length"), True, True, True),
    ],
)
def test_a_step_ends_the_thought_the_chain_or_neither(
    ended: Step, in_thought: bool, ends_thought: bool, ends_chain: bool
) -> None:
    found = ending(ended, in_thought=in_thought)
    assert (found.thought, found.chain) == (ends_thought, ends_chain)


TEXT = "首先🙂 x²=4\n\n因此\ufffd x=±2 👩\u200d🚀\n\nSo \\boxed{2}. "


class Writer(ScriptedEngine):
    """Continues a text byte by byte from where the prompt ends, also inside a character."""

    def __init__(self, text: str, tokenizer: ByteTokenizer) -> None:
        super().__init__(lambda prompt, sampling: [], judge, tokenizer)
        self.ids = tokenizer.encode(text)

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        opening = self.tokenizer.encode("Assistant: ")
        begun = next(i for i in range(len(prompt)) if list(prompt[i : i + len(opening)]) == opening) + len(opening)
        rest = self.ids[len(prompt) - begun :]
        finish: Finish = "eos"
        for end in range(1, len(rest) + 1):
            if any(stop in self.tokenizer.decode(rest[:end]) for stop in sampling.stop):
                rest, finish = rest[:end], "stop"
                break
        num_tokens = len(rest) + (finish == "eos")
        if num_tokens > sampling.max_tokens:
            rest, finish, num_tokens = rest[: sampling.max_tokens], "length", sampling.max_tokens
        completion = Completion(tuple(rest), self.tokenizer.decode(rest), finish, num_tokens)
        return Generation((completion,) * sampling.n, len(prompt), 0, Timing(0.0, 0.0, 0.0, 0.0, 1))


def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
    """The first candidate, or the best score."""
    chosen = len(labels) - 1 if labels[0] == "0" else 0
    return [0.9 if i == chosen else 0.01 for i in range(len(labels))]


async def run(method: str, limit: int, text: str, *, alike: bool = True, context_tokens: int = 1 << 16) -> Trace:
    draft = Writer(text, ByteTokenizer() if alike else OtherTokenizer())
    draft.context_tokens = context_tokens
    params: dict[str, Any] = {"guidance_tokens": limit, "drafts": 2} if method == "speccot" else {}
    return await solve(method, {"draft": draft, "target": Writer(text, ByteTokenizer())}, step_tokens=limit, **params)


@pytest.mark.parametrize("alike", [True, False], ids=["same tokenizer", "other tokenizer"])
@pytest.mark.parametrize("method", ["speccot", "specreason"])
@pytest.mark.parametrize("limit", range(1, 9))
async def test_steps_of_any_limit_are_whole_characters_and_together_the_text(
    method: str, limit: int, alike: bool
) -> None:
    text = TEXT if limit > 1 else TEXT.replace("\n\n", " ")  # two steps of one line break each would repeat
    trace = await run(method, limit, text, alike=alike)
    assert trace.stop_reason == "answered"
    assert trace.output_text.removesuffix(". ") == text.removesuffix(". ")
    for step in trace.steps:
        assert step.text or step.finish == "eos"
        assert step.text == ByteTokenizer().decode(step.token_ids) or not alike
        assert step.num_tokens <= max(limit, 4)
        for candidate in step.candidates:
            assert candidate.text in text, "shown to the judge"
    assert trace.emitted_tokens <= trace.spent_tokens()


@pytest.mark.parametrize("room", range(1, 9))
async def test_a_context_without_room_for_a_character_is_full(room: int) -> None:
    """Not a chain of empty steps, which would count as repeated."""
    text = "".join(chr(0x1F600 + i) for i in range(20))
    for method in ("speccot", "specreason"):
        prompt = (await run(method, 2, text)).draft_prompt
        trace = await run(method, 2, text, context_tokens=len(ByteTokenizer().encode(prompt)) + 12 + room)
        assert trace.stop_reason == "context"
        assert trace.output_text == text[: 3 + room // 4]
        assert all(step.text for step in trace.steps)


def test_tokenizers_know_which_ids_are_half_a_character(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    (tmp_path / "bytes").mkdir()
    save_tokenizer(tmp_path / "bytes")
    pieces = PreTrainedTokenizerFast(tokenizer_object=multibyte.sentence_piece(), eos_token="</s>")
    pieces.save_pretrained(tmp_path / "pieces")
    for name in ("bytes", "pieces"):
        tokenizer = HFTokenizer(str(tmp_path / name))
        ids = tokenizer.encode(multibyte.TEXT)
        assert tokenizer.decode(ids).strip() == multibyte.TEXT.strip(), name
        whole = [0]
        for i in range(1, len(ids) + 1):
            begun = tuple(ids[:i])
            count = num_cut(Completion(begun, tokenizer.decode(begun), "length", i), tokenizer)
            assert i - count == (i if not count else whole[-1]), f"{name}: {i}"
            if not count:
                whole.append(i)
                assert multibyte.TEXT.startswith(tokenizer.decode(ids[:i]).lstrip("▁")), f"{name}: {i}"
        assert 100 < len(whole) < len(ids), name


@pytest.mark.parametrize(
    ("writes", "ends_at", "num_steps"),
    [
        (["maybe \\boxed{4}\n\n", "no\n\n", "5</think>\n\n", "\\boxed{5}"], "answer", 4),
        (["maybe \\boxed{4}\n\n"], "boxed", 1),
        (["two\n\n", "ANSWER: 5\n\n"], "boxed", 2),
        (["two\n\n", "the boxed one\n\n"], "boxed", 2),
    ],
)
async def test_specreason_may_end_at_what_the_authors_program_takes_for_an_answer(
    writes: list[str], ends_at: str, num_steps: int
) -> None:
    draft, target = Script(writes), Script([], decides=["9"] * 4)
    trace = await solve_pair("specreason", draft, target, thinks=True, ends_at=ends_at)
    assert (len(trace.steps), trace.stop_reason) == (num_steps, "answered")


@pytest.mark.parametrize("end", ["\n\n", "\n</think>\n\n"])
def test_an_answer_inside_the_thought_is_graded_also_where_its_step_closes_the_thought(end: str) -> None:
    thinking = {"stop_reason": "answered", "draft_prompt": "<think>\n", "target_prompt": "<think>\n"}
    sample, text = cast(SampleRow, thinking), "2 + 3\n\n\\boxed{5}" + end
    gold = Gold("5")
    assert grade(_submission(sample, text, answers_in_thought=True), gold).verdict == "correct"
    assert grade(_submission(sample, text, answers_in_thought=False), gold).verdict == "no_answer"
