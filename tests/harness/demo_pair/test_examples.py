"""Examples consist of what the harness sends, and each token is labelled with what a judge would know of it."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from harness import prompts
from harness.chain import Chain, Limits
from harness.demo_pair import inference, network
from harness.demo_pair.batch_engine import BatchEngine
from harness.demo_pair.batches import LABELS
from harness.demo_pair.config import LayerShape
from harness.demo_pair.examples import IGNORED, KINDS, Curriculum, Example, Kind
from harness.demo_pair.mistakes import Mistakes, corrupted_step
from harness.demo_pair.stories import Story
from harness.engine import Completion
from harness.prompt_file import BUILT_IN
from harness.recording import Model
from harness.trace import Trace
from harness.weights.tokenizer import HFTokenizer

SHAPE = LayerShape(width=16, inner=16, heads=1)


def curriculum(tokenizer: HFTokenizer, taught: list[Story], kind: Kind, mistakes: Mistakes | None = None) -> Curriculum:
    return Curriculum(tokenizer, taught, mistakes or Mistakes(), {kind: 1.0}, seed=5)


def examples(tokenizer: HFTokenizer, taught: list[Story], kind: Kind, n: int = 60) -> list[Example]:
    made = [curriculum(tokenizer, taught, kind).example(number) for number in range(n)]
    assert None not in made
    return [example for example in made if example is not None]


def test_the_tokenizer_reads_any_text_and_a_fixed_sentence_of_the_prompts_is_one_token(tokenizer: HFTokenizer) -> None:
    text = "Ana buys 217 <script>alert('é漢')</script> <|end|> ∑"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id not in tokenizer.encode(text)
    assert len(tokenizer.encode("217")) == 3
    assert len(prompts.score_question(tokenizer).ids) < 20
    assert tokenizer.thinks


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_reproducible_and_has_labels_for_every_token(
    tokenizer: HFTokenizer, taught: list[Story], kind: Kind
) -> None:
    for number, example in enumerate(examples(tokenizer, taught, kind, 30)):
        assert example == curriculum(tokenizer, taught, kind).example(number)
        assert {len(getattr(example, name)) for name in LABELS} == {len(example.ids)}
        assert bool(example.verdict_ids) == (kind != "solve")


def test_a_solution_is_taught_from_the_prompt_that_the_harness_sends(
    tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    for example in examples(tokenizer, taught, "solve"):
        [story] = [s for s in taught if tokenizer.decode(example.ids).startswith(f"<|user|>{s.text}\n")]
        opened = [prompts.opening(tokenizer, story.problem, rubric=rubric)[0] for rubric in (False, True)]
        ids = next(ids for ids in opened if example.ids[: len(ids)] == ids)
        is_unclosed = "\n\n\n</think>" in tokenizer.decode(example.ids[len(ids) :])
        chain = replace(story, is_unclosed=is_unclosed)
        text = "".join(chain.step(number) for number in range(chain.end + 1))
        assert tokenizer.decode(example.ids[len(ids) :]) == f"{text}<|end|>"
        unlike = [i for i in range(len(ids), len(example.ids)) if example.next_ids[i - 1] != example.ids[i]]
        assert len(unlike) == is_unclosed
        for place in unlike:  # the blank line is followed by the end, but it is not what is taught to stand there
            assert example.ids[place : place + 2] == tokenizer.encode("\n\n\n")[::-1]
            assert tokenizer.decode(example.next_ids[place - 1 : place + 2]) == "\n\n</think>"


def test_what_is_taught_behind_an_unclosed_step_is_the_context_that_the_methods_send(
    tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    story = next(s for s in taught if s.level == "hard")
    last = len(story.steps) - 1
    accepted = [story.step(number) for number in range(last)] + [f"{story.steps[last]}\n\n", "\n</think>\n\n"]
    trace = Trace("p", "0", 0, 1)
    model = Model(BatchEngine(network.new_model(SHAPE, 1, 500, 1, 1), tokenizer), "target", trace)
    chain = Chain(story.problem, [model], trace, Limits(0.0, 1.0, 512))
    for number, text in enumerate(accepted):
        assert chain.reasoning
        ids = tuple(tokenizer.encode(text))
        chain.accept(model, "fallback", Completion(ids, text, "stop", len(ids)))
        unclosed = replace(story, is_unclosed=True)
        sent = chain._contexts["target"].ids
        assert sent == inference.prompt_before_step(tokenizer, unclosed, number + 1)
    assert not chain.reasoning
    assert not chain.answered, "the conclusion follows"


@pytest.mark.parametrize("kind", ["score", "apart", "choose", "reward"])
def test_an_unclosed_right_step_and_the_end_behind_it_are_taught_as_right(
    tokenizer: HFTokenizer, taught: list[Story], kind: Kind
) -> None:
    verdicts: dict[str, set[int]] = {"unclosed": set(), "end": set()}
    for example in examples(tokenizer, taught, kind, 1600):
        [story] = [s for s in taught if s.text in tokenizer.decode(example.ids)]
        judged = [token for token, of in zip(example.ids, example.candidate, strict=True) if of != IGNORED]
        text = tokenizer.decode(judged)
        if 1 in example.is_first_error:
            continue
        if f"{story.steps[-1]}\n\n" in text and "</think>" not in text:
            verdicts["unclosed"].update(example.verdict_ids)
        if "\n\n\n</think>" in text or BUILT_IN.step_choice.blank in text:
            verdicts["end"].update(example.verdict_ids)
    wrong = {tokenizer.encode(digit)[0] for digit in ("0", "-")}
    assert all(tokens and not tokens & wrong for tokens in verdicts.values())


def test_a_wrong_step_is_marked_where_it_leaves_the_right_one(tokenizer: HFTokenizer) -> None:
    example = Example()
    example.append_context(tokenizer.encode("so "))
    right, wrong = tokenizer.encode("12 + 25 = 37."), tokenizer.encode("12 + 25 = 47.")
    assert not example.append_judged(wrong, right, 2)
    at = len(example.ids) - len(wrong) + next(i for i, (a, b) in enumerate(zip(wrong, right, strict=True)) if a != b)
    assert [i for i, first in enumerate(example.is_first_error) if first == 1] == [at]
    assert tokenizer.decode([example.correct_ids[at]]) == "3"
    assert example.next_ids[at - 1] == example.correct_ids[at]
    assert example.next_ids[at:] == [IGNORED] * (len(example.ids) - at), "behind a mistake nothing is taught to follow"
    assert example.is_after_error[at:] == [1] * (len(example.ids) - at)
    assert set(example.candidate[-len(wrong) :]) == {2}


def test_a_step_that_ends_too_soon_is_wrong(tokenizer: HFTokenizer) -> None:
    example = Example()
    example.append_context(tokenizer.encode("so "))
    right = tokenizer.encode("12 + 25 = 37.")
    assert not example.append_judged(right[:-1], right)
    assert example.next_ids[-1] == right[-1]
    assert 1 not in example.is_first_error


def test_a_reward_is_taught_for_steps_and_for_the_answer_behind_them(
    tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    question = prompts.reward_question(tokenizer)
    good, bad = question.option_ids
    assert (tokenizer.decode([good]), tokenizer.decode([bad])) == ("+", "-")
    right = answers = 0
    for example in examples(tokenizer, taught, "reward", 200):
        assert tuple(example.ids[-len(question.ids) :]) == question.ids
        is_right = 1 not in example.is_after_error
        assert example.verdict_ids == ((good,) if is_right else (bad,))
        right += is_right
        judged = [token for token, of in zip(example.ids, example.candidate, strict=True) if of != IGNORED]
        answers += "\\boxed{" in tokenizer.decode(judged)
    assert 110 < right < 170, "about seven in ten"
    assert 15 < answers < 50


@pytest.mark.parametrize("kind", ["choose", "chains"])
def test_what_is_named_behind_the_candidates_is_the_verdict(
    tokenizer: HFTokenizer, taught: list[Story], kind: Kind
) -> None:
    rejected = 0
    for example in examples(tokenizer, taught, kind):
        named = [number for number in example.right_candidate if number != IGNORED]
        candidates = {number for number in example.candidate if number != IGNORED}
        [verdict] = [int(tokenizer.decode([token])) for token in example.verdict_ids]
        assert len(named) == len(candidates)
        assert verdict == (max(named) or len(named) + 1)
        assert sum(number > 0 for number in named) <= 1
        rejected += max(named) == 0
    assert 5 < rejected < 40


def test_what_the_draft_got_wrong_is_kept_by_its_step(taught: list[Story]) -> None:
    story = next(s for s in taught if len(s.steps) >= 3)
    mistakes = Mistakes()
    mistakes.add(story, {0: [story.step(0)], 1: [story.step(1), "Somebody eats it all.\n\n", story.step(0)]})
    assert mistakes.steps(0) == {1: sorted(["Somebody eats it all.\n\n", story.step(0)])}
    assert mistakes.steps(1) == {}
    last = len(story.steps)
    mistakes.add(story, {last - 1: [story.steps[-1] + "\n\n"], last: ["</think>\n\n", story.step(0)]})
    assert mistakes.steps(1) == {last: [story.step(0)]}, "what follows a last step without its end"


def test_a_slip_changes_a_digit_a_word_or_a_sign_or_the_number_of_digits(taught: list[Story]) -> None:
    story = next(s for s in taught if len(s.steps) >= 3)
    words = set(re.findall(r"[A-Za-z]+", " ".join((story.text, *story.steps, "think"))))
    slips = {corrupted_step(random.Random(seed), story, 1) for seed in range(400)}
    right = story.step(1)
    assert right not in slips
    near = [text for text in slips if text[:3] == right[:3] or text[-8:] == right[-8:]]
    assert all(set(re.findall(r"[A-Za-z]+", text)) <= words for text in slips)
    assert any(re.sub(r"\d", "", text) != re.sub(r"\d", "", right) for text in near), "another word or sign"
    digits = len(re.findall(r"\d", right))
    same_words = [text for text in near if re.findall(r"[A-Za-z]+", text) == re.findall(r"[A-Za-z]+", right)]
    assert {len(re.findall(r"\d", text)) - digits for text in same_words} >= {-1, 0, 1}
