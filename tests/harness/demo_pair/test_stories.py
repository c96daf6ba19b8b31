"""The generator's solutions are right, and what is held out is not taught."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

from harness.demo_pair import splits
from harness.demo_pair.config import DEFAULT, read
from harness.demo_pair.stories import LEVELS, Story, stories
from harness.problems import benchmarks

CALCULATION = re.compile(r"(\d+) ([-+×]) (\d+), (.*), so (\d+)\.$")
SUM = re.compile(r"(\d)((?: [-+×] \d+)+) = (\d+)")


def some(n: int = 600) -> list[Story]:
    return list(itertools.islice(stories(7), n))


def column(term: re.Match[str]) -> int:
    """Return the value of a column such as `5 + 6 + 1`, evaluated from the left; a product comes first."""
    value = int(term[1])
    for sign, number in re.findall(r"([-+×]) (\d+)", term[2]):
        value = {"+": value + int(number), "-": value - int(number), "×": value * int(number)}[sign]
    return value


def test_every_step_reckons_right_and_the_last_one_has_the_answer() -> None:
    calculations = 0
    for story in some():
        known_numbers = set(re.findall(r"\d+", story.text)) | {"2", "3"}  # doubles, triples
        for step in story.steps:
            if calculation := CALCULATION.search(step):
                a, b = int(calculation[1]), int(calculation[3])
                sign, columns, result = calculation[2], calculation[4], calculation[5]
                assert {str(a), str(b)} <= known_numbers, "each number is in the story or was computed before"
                assert {"+": a + b, "-": a - b, "×": a * b}[sign] == int(result), story
                worked = list(SUM.finditer(columns))
                assert len(worked) == columns.count("=") >= 1
                assert all(column(term) == int(term[3]) for term in worked), story
                known_numbers.add(result)
                calculations += 1
            assert ("=" in step) == bool(calculation)
        assert int(re.findall(r"\d+", story.steps[-1])[-1]) == story.answer
        assert 1 <= story.answer <= 999
        assert story.problem.answer == str(story.answer)
    assert calculations > 1000


def test_levels_differ() -> None:
    by_level = {level: [story for story in some() if story.level == level] for level in LEVELS}
    steps = {level: sum(len(s.steps) for s in stories) / len(stories) for level, stories in by_level.items()}
    assert steps["easy"] < steps["medium"] < steps["hard"]
    hard = by_level["hard"]
    assert all(len(re.findall(r"\d+", s.text)) > 0 for s in hard)
    unused = [s for s in hard if any(n not in " ".join(s.steps).split() for n in re.findall(r"\b\d{3}\b", s.text))]
    assert unused, "distractors"


def test_a_step_is_judged_by_its_text_and_by_where_the_thought_ends() -> None:
    story = next(s for s in some() if len(s.steps) == 3)
    assert all(story.is_right(number, story.step(number)) for number in range(3))
    assert story.is_right(2, story.steps[2] + "\n\n"), "a verdict that is not shown the end cannot judge it"
    assert not story.is_right(0, story.steps[0] + "\n</think>\n\n")
    assert not story.is_right(1, story.step(0))
    assert not story.is_right(3, "anything")


def test_the_step_behind_the_last_one_is_the_answer() -> None:
    story = some()[0]
    behind = len(story.steps)
    assert story.step(behind) == story.conclusion == f"The answer is \\boxed{{{story.answer}}}."
    assert story.is_right(behind, story.conclusion)
    assert not story.is_right(behind, story.conclusion.replace("boxed{", "boxed{1"))
    assert not story.is_right(behind + 1, story.conclusion)


def test_an_unclosed_story_ends_its_thought_behind_the_last_step() -> None:
    story = some()[0]
    unclosed, last = replace(story, is_unclosed=True), len(story.steps) - 1
    ends = [unclosed.step(number) for number in range(last, unclosed.end + 1)]
    assert ends == [f"{story.steps[last]}\n\n", "\n</think>\n\n", story.conclusion]
    assert all(unclosed.is_right(number, unclosed.step(number)) for number in range(unclosed.end + 1))
    assert [number for number in range(last + 3) if unclosed.lacks_end(number)] == [last]
    assert unclosed.is_right(last, story.step(last))
    assert unclosed.is_right(last + 1, "</think>\n\n")
    assert not unclosed.is_right(last + 1, story.step(0))
    assert not unclosed.is_right(last + 1, story.conclusion)
    assert not any(story.lacks_end(number) for number in range(last + 2))


def test_the_demos_problems_are_what_the_generator_makes() -> None:
    assert (benchmarks.BUNDLED / "demo.jsonl").read_text(encoding="utf-8") == splits.demo_lines()
    assert len(benchmarks.load("demo")) == 40


def test_the_training_set_is_what_the_generator_makes_and_shares_nothing_with_the_demo_or_with_what_is_taught() -> None:
    config = read(Path(DEFAULT))
    assert (benchmarks.BUNDLED / "demo-train.jsonl").read_text(encoding="utf-8") == splits.demo_train_lines(config)
    texts = {problem.text for problem in benchmarks.load("demo-train")}
    assert len(texts) == 1000
    assert texts.isdisjoint(story.text for story in (*splits.demo_stories(), *splits.held_out_stories(config)))
    assert texts.isdisjoint(story.text for story in splits.training_stories(config))
    assert benchmarks.DATASETS["demo-train"].training


def test_nothing_held_out_is_taught() -> None:
    config = read(Path(DEFAULT)).model_copy(update={"stories": 5000})
    held_out = {story.text for story in (*splits.demo_stories(), *splits.held_out_stories(config))}
    assert len(held_out) == 240
    assert held_out.isdisjoint(story.text for story in splits.training_stories(config))
    assert any(story.text in held_out for story in itertools.islice(stories(config.seed + 1), 300)), "it could be"
