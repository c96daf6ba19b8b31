"""What a chain asks: verdicts on whole steps, each distinct candidate once, and probabilities of texts; similarity."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chain import Chain, Limits
from harness.chain.chain import ModelContext
from harness.chain.step_candidates import as_candidates, cosine, mean_score, most_consistent, offered_texts
from harness.engine import Completion, Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import METHODS
from harness.methods.method import required_context_tokens
from harness.prompts import SCORE_LABELS, step_choice_question
from harness.recording import Model
from harness.trace import Verdict
from tests.harness.scripts import PROBLEM, OtherTokenizer, Script, new_trace, solve, solve_pair


async def test_a_models_probability_of_candidates_is_read_behind_the_chain_in_its_own_tokens() -> None:
    seen: list[str] = []

    def weigh(before: str, token: str) -> tuple[float, float]:
        seen.append(before + token)
        return 1.0 - len(seen), 0.0

    trace = new_trace()
    draft = Model(Script().engine(), "draft", trace)
    target = Model(Script().engine(tokenizer=OtherTokenizer(), weigh=weigh), "target", trace)
    candidates = [Completion(tuple(text.encode()), text, "stop", len(text)) for text in ("xy", "", "z")]
    chain = Chain(PROBLEM, [draft, target], trace, Limits(0.0, 1.0, 400))
    logprobs = await chain.log_probabilities(target, candidates, draft)
    assert logprobs == [(0.0, -1.0), (), (-2.0,)]
    assert seen == [trace.target_prompt + text for text in ("x", "xy", "z")]
    [call] = trace.calls
    assert (call.purpose, call.model, call.n, call.output_tokens) == ("verdict", "target", 2, 2)


async def test_candidates_behind_guidance_are_shown_as_the_steps_that_they_complete() -> None:
    draft, target = (
        Script([["3 = 5\n\n", "4 = 6\n\n"], ["\\boxed{5}"] * 2]),
        Script(["Add.\n\n2 + "], decides=["1", "1"]),
    )
    trace = await solve_pair("speccot", draft, target, drafts=2, guidance_tokens=len("Add.\n\n2 + "))
    verdict = trace.steps[1].verdict
    assert verdict is not None
    assert "[1]\n2 + 3 = 5\n\n[2]\n2 + 4 = 6" in verdict.question
    chain = target.prompts[1].removeprefix(trace.target_prompt).partition("Here are proposals")[0]
    assert chain.startswith("Add.\n\n")
    assert "2 +" not in chain, "the target would read the beginning of the step twice"
    assert trace.output_text == "Add.\n\n2 + 3 = 5\n\n\\boxed{5}", "what is written continues the guidance itself"


async def test_a_chain_without_blank_lines_reaches_its_budget_as_the_context_is_planned() -> None:
    def write(prompt: str, sampling: Sampling) -> list[str]:
        return [f"line {len(prompt)} of draft {i}\n" * 9 for i in range(sampling.n)]

    budget = 1024
    params: dict[str, Any] = {"drafts": 2, "step_tokens": 64, "guidance_tokens": 0}
    room = required_context_tokens([PROBLEM], budget, METHODS["speccot"](**params).verdict_tokens(budget))
    draft, target = (ScriptedEngine(write, lambda _, labels: [1.0] * len(labels), context_tokens=room) for _ in "dt")
    trace = await solve("speccot", {"draft": draft, "target": target}, budget=budget, **params)
    assert trace.stop_reason == "budget"
    questions = [step.verdict.question for step in trace.steps if step.verdict]
    assert questions[3].count(trace.steps[0].text) == 2, "each candidate is shown with the beginning of its step"
    assert questions[-1].count(trace.steps[0].text) == 0, "where it fits, and else without"


class PairTokenizer(ByteTokenizer):
    """Two characters in every token, so that tokens straddle the end of a step."""

    def encode(self, text: str) -> list[int]:
        data = text.encode() + b"\0" * (len(text.encode()) % 2)
        return [1000 + 256 * data[i] + data[i + 1] for i in range(0, len(data), 2)]

    def decode(self, ids: Any) -> str:
        return bytes(byte for i in ids for byte in divmod(i - 1000, 256) if byte).decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["a.\n\nb", "ab.\n\nb", "a.\n\nbc\n\nd", "é\n\nü", "a\n\n\nb"])
@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), PairTokenizer()])
def test_the_context_of_whole_steps_ends_at_the_last_blank_line(text: str, tokenizer: ByteTokenizer) -> None:
    context = ModelContext(tokenizer, PROBLEM)
    num_prompt = len(context.ids)
    context.append(tokenizer.encode(text), text, tokenizer)
    whole = text[: text.rindex("\n\n") + 2]
    assert tokenizer.decode(context.whole_steps()[num_prompt:]) == whole
    assert context.open_text == text.removeprefix(whole)


def test_two_options_never_look_equal() -> None:
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 5.\n\n", "So 5.\n</think>\n\n"])
    assert "[1]\nSo 5.\n\n[2]\nSo 5.\n(the solution ends here)" in question.text
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 6.\n\n", "So 5.\n</think>\n\n"])
    assert "(the solution ends here)" not in question.text, "a last step that nothing equals is shown as it is"


@given(st.lists(st.sampled_from(["a", "b", " a ", "c\n"]), max_size=8))
def test_every_option_stands_for_one_text(texts: list[str]) -> None:
    candidates = as_candidates([Completion(tuple(text.encode()), text, "stop", len(text), -0.25) for text in texts])
    offered = offered_texts(candidates)
    assert len({text.strip() for text in offered}) == len(offered)
    for candidate in candidates:
        assert candidate.option is not None
        assert offered[candidate.option].strip() == candidate.text.strip()


def test_the_mean_score_weighs_each_digit_by_its_probability() -> None:
    halves = [-math.inf] * 10
    halves[4] = halves[9] = math.log(0.5)
    unsure = [math.log(0.025)] * 10  # the digits need not hold all of the model's probability
    for logprobs, score in ((halves, 6.5), (unsure, 4.5)):
        verdict = Verdict("score", "Score:", SCORE_LABELS, tuple(logprobs), 0, None, accepted=False)
        assert mean_score(verdict) == pytest.approx(score)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("2 + 3 = 5", "2+3 =  5\n\n", 1.0),
        ("So it is FIVE.", "so it is five .", 1.0),
        ("a a b", "a b b", 4 / 5),
        ("x = 12", "x = 1 2", 2 / math.sqrt(3 * 4)),
        ("3.5", "3 5", 0.0),
        ("", " \n", 1.0),
        ("", "a", 0.0),
    ],
)
def test_similarity_is_the_cosine_of_the_counts_of_words_numbers_and_signs(
    one: str, other: str, expected: float
) -> None:
    assert cosine(one, other) == pytest.approx(expected)
    assert cosine(other, one) == pytest.approx(expected)


def test_the_choice_is_that_of_the_least_weight_on_itself_under_a_softmax() -> None:
    texts = ["a b c d", "a b c x", "a b y z", "q r s t", "a b c d"]
    rows = [[cosine(one, other) for other in texts] for one in texts]
    own = [math.exp(row[i]) / sum(map(math.exp, row)) for i, row in enumerate(rows)]
    assert most_consistent(texts) == min(range(len(texts)), key=own.__getitem__)
