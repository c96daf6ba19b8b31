"""Examples consist of what the harness sends, and each token is labelled with what a judge would know of it."""

from __future__ import annotations

import pytest

from harness import prompts
from harness.demo_pair.batches import LABELS
from harness.demo_pair.examples import IGNORED, KINDS, Curriculum, Example, Kind
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import Story
from harness.weights.tokenizer import HFTokenizer


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
        solved = [token for token in example.next_ids if token != IGNORED]
        assert solved == example.ids[len(ids) :]
        assert tokenizer.decode(solved).endswith(f"{story.conclusion}<|end|>")


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
