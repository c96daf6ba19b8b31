"""Lessons are made of what the harness sends, and each token is marked with what a judge would know of it."""

from __future__ import annotations

import pytest

from harness import prompts
from harness.demo_pair.lessons import KINDS, NONE, Kind, Lesson, Teacher
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import Story
from harness.tokenizer import HFTokenizer


def teacher(tokenizer: HFTokenizer, taught: list[Story], kind: Kind, mistakes: Mistakes | None = None) -> Teacher:
    return Teacher(tokenizer, taught, mistakes or Mistakes(), {kind: 1.0}, seed=5)


def lessons(tokenizer: HFTokenizer, taught: list[Story], kind: Kind, n: int = 60) -> list[Lesson]:
    made = [teacher(tokenizer, taught, kind).lesson(number) for number in range(n)]
    assert None not in made
    return [lesson for lesson in made if lesson is not None]


def test_the_tokenizer_reads_any_text_and_a_sentence_of_the_house_is_one_token(tokenizer: HFTokenizer) -> None:
    text = "Ana buys 217 <script>alert('é漢')</script> <|end|> ∑"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id not in tokenizer.encode(text)
    assert len(tokenizer.encode("217")) == 3
    assert len(prompts.score_question(tokenizer).ids) < 20
    assert tokenizer.thinks


@pytest.mark.parametrize("kind", KINDS)
def test_a_lesson_is_the_same_every_time_and_its_lists_have_one_length(
    tokenizer: HFTokenizer, taught: list[Story], kind: Kind
) -> None:
    for number, lesson in enumerate(lessons(tokenizer, taught, kind, 30)):
        assert lesson == teacher(tokenizer, taught, kind).lesson(number)
        marks = (lesson.follow, lesson.stands, lesson.first, lesson.since, lesson.number, lesson.named)
        assert {len(mark) for mark in marks} == {len(lesson.ids)}
        assert bool(lesson.right) == (kind != "solve")


def test_a_solution_is_taught_from_the_prompt_that_the_harness_sends(
    tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    for lesson in lessons(tokenizer, taught, "solve"):
        [story] = [s for s in taught if tokenizer.decode(lesson.ids).startswith(f"<|user|>{s.text}\n")]
        opened = [prompts.opening(tokenizer, story.problem, rubric=rubric)[0] for rubric in (False, True)]
        ids = next(ids for ids in opened if lesson.ids[: len(ids)] == ids)
        solved = [token for token in lesson.follow if token != NONE]
        assert solved == lesson.ids[len(ids) :]
        assert tokenizer.decode(solved).endswith(f"{story.conclusion}<|end|>")


def test_a_wrong_step_is_marked_where_it_leaves_the_right_one(tokenizer: HFTokenizer) -> None:
    lesson = Lesson()
    lesson.read(tokenizer.encode("so "))
    right, wrong = tokenizer.encode("12 + 25 = 37."), tokenizer.encode("12 + 25 = 47.")
    assert not lesson.judge(wrong, right, 2)
    at = len(lesson.ids) - len(wrong) + next(i for i, (a, b) in enumerate(zip(wrong, right, strict=True)) if a != b)
    assert [i for i, first in enumerate(lesson.first) if first == 1] == [at]
    assert tokenizer.decode([lesson.stands[at]]) == "3"
    assert lesson.follow[at - 1] == lesson.stands[at]
    assert lesson.follow[at:] == [NONE] * (len(lesson.ids) - at), "behind a mistake nothing is taught to follow"
    assert lesson.since[at:] == [1] * (len(lesson.ids) - at)
    assert set(lesson.number[-len(wrong) :]) == {2}


def test_a_step_that_ends_too_soon_is_wrong(tokenizer: HFTokenizer) -> None:
    lesson = Lesson()
    lesson.read(tokenizer.encode("so "))
    right = tokenizer.encode("12 + 25 = 37.")
    assert not lesson.judge(right[:-1], right)
    assert lesson.follow[-1] == right[-1]
    assert 1 not in lesson.first


@pytest.mark.parametrize("kind", ["choose", "chains"])
def test_what_is_named_behind_the_candidates_is_the_verdict(
    tokenizer: HFTokenizer, taught: list[Story], kind: Kind
) -> None:
    rejected = 0
    for lesson in lessons(tokenizer, taught, kind):
        named = [number for number in lesson.named if number != NONE]
        candidates = {number for number in lesson.number if number != NONE}
        [said] = [int(tokenizer.decode([token])) for token in lesson.right]
        assert len(named) == len(candidates)
        assert said == (max(named) or len(named) + 1)
        assert sum(number > 0 for number in named) <= 1
        rejected += max(named) == 0
    assert 5 < rejected < 40


def test_what_the_draft_got_wrong_is_kept_by_its_step(taught: list[Story]) -> None:
    story = next(s for s in taught if len(s.steps) >= 3)
    found = Mistakes()
    found.add(story, {0: [story.step(0)], 1: [story.step(1), "Somebody eats it all.\n\n", story.step(0)]})
    assert found.steps(0) == {1: sorted(["Somebody eats it all.\n\n", story.step(0)])}
    assert found.steps(1) == {}
