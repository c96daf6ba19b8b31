"""Lessons: what the pair's models read, token by token, and what is known about each token.

Every lesson is made of exactly the ids that the harness sends (harness.prompts), so that what is learned is what is
asked: solving, scoring a step (SpecReason, section 4.1), choosing a step among candidates or rejecting them (SpecCoT,
equation 4), choosing a whole chain or «all wrong» (SCoT, section 3.4).

A verdict on its own teaches a small model nothing: it is one bit behind a hundred tokens. So each token of what is
judged is marked with what a judge would know there, see `Lesson`; `harness.demo_pair.network` has a layer learn each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness import prompts
from harness.demo_pair.mistakes import Mistakes, slip
from harness.demo_pair.stories import Story
from harness.prompts import THINK_END, Question
from harness.tokenizer import HFTokenizer

Kind = Literal["solve", "score", "apart", "choose", "chains"]
KINDS: tuple[Kind, ...] = ("solve", "score", "apart", "choose", "chains")
"""apart: a score asked with two words behind a prompt that holds the rubric, as SpecCoT's separate verdicts are."""
NONE = -100
"""No mark; what torch's cross entropy leaves out."""
_MOST_CANDIDATES, _MOST_CHAINS = 5, 3
_OWN = 0.7
"""Share of the draft's own mistakes among the wrong."""
_WRONG_DIGIT, _RIGHT_DIGIT = 0, 9


@dataclass(slots=True)
class Lesson:
    """Token ids, and for each what is known of it; NONE where nothing is. All lists have one length."""

    ids: list[int] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)
    """The token that should come next, by the right solution."""
    stands: list[int] = field(default_factory=list)
    """The token that should stand here."""
    first: list[int] = field(default_factory=list)
    """1 where this is the first mistake of what is judged, else 0."""
    since: list[int] = field(default_factory=list)
    """1 from the first mistake on, else 0."""
    number: list[int] = field(default_factory=list)
    """Number, from 1, of the candidate that stands here."""
    named: list[int] = field(default_factory=list)
    """Right behind a candidate: its number if it is right, else 0."""
    right: tuple[int, ...] = ()
    """The tokens that are a right verdict behind the last one; empty where none is asked."""
    scored: bool = False
    """Whether the verdict is a score."""

    def read(self, ids: Sequence[int]) -> None:
        """Text that is only read."""
        self.ids += ids
        for marks in (self.follow, self.stands, self.first, self.since, self.number, self.named):
            marks.extend([NONE] * len(ids))

    def judge(self, ids: Sequence[int], expected: Sequence[int], number: int = 1) -> bool:
        """Text that is judged against what should stand there; returns whether it is right."""
        start = len(self.ids)
        self.read(ids)
        agreed = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), None)
        wrong_at = min(len(ids), len(expected)) if agreed is None else agreed
        for i in range(len(ids)):
            at = start + i
            if i <= wrong_at and i < len(expected):
                self.follow[at - 1] = self.stands[at] = expected[i]
            self.first[at] = int(i == wrong_at)
            self.since[at] = int(i >= wrong_at)
            self.number[at] = number
        if wrong_at == len(ids) < len(expected):
            self.follow[-1] = expected[wrong_at]  # it ends too early
        return wrong_at == len(ids) == len(expected)

    def behind(self, ids: Sequence[int], number: int, *, right: bool) -> None:
        """What is read behind something judged; its first token is where a reader can know how it was."""
        at = len(self.ids)
        self.read(ids)
        self.since[at], self.number[at], self.named[at] = int(not right), number, number if right else 0


class Teacher:
    """Makes lessons of stories and of mistakes."""

    def __init__(
        self,
        tokenizer: HFTokenizer,
        taught: Sequence[Story],
        mistakes: Mistakes,
        shares: Mapping[Kind, float],
        seed: int,
    ) -> None:
        """`shares`: of the kinds in all lessons."""
        self._tokenizer, self._taught, self._mistakes, self._seed = tokenizer, taught, mistakes, seed
        self._kinds, self._weights = list(shares), list(shares.values())

    def lesson(self, number: int) -> Lesson | None:
        """The lesson of that number, always the same; None where its texts have no common tokens."""
        dice = random.Random(f"{self._seed}/{number}")
        [kind] = dice.choices(self._kinds, self._weights)
        own = kind != "solve" and len(self._mistakes) and dice.random() < _OWN
        at = dice.randrange(len(self._mistakes) if own else len(self._taught))
        makers: dict[Kind, Callable[[random.Random, int], Lesson | None]] = {
            "solve": self._solve, "score": self._score, "apart": self._apart, "choose": self._choose,
            "chains": self._chains,
        }  # fmt: skip
        return makers[kind](dice, at)

    def _opened(self, story: Story, steps: int, *, rubric: bool = False) -> Lesson:
        """Problem and the first steps of its solution."""
        lesson = Lesson()
        lesson.read(prompts.opening(self._tokenizer, story.problem, rubric=rubric)[0])
        for number in range(steps):
            ids = self._tokenizer.encode(story.step(number))
            lesson.judge(ids, ids)
        return lesson

    def _solve(self, dice: random.Random, at: int) -> Lesson:
        story = self._taught[at]
        lesson = self._opened(story, len(story.steps), rubric=dice.random() < 0.1)
        end = self._tokenizer.eos_token_id
        assert end is not None
        ids = [*self._tokenizer.encode(story.conclusion), end]
        lesson.judge(ids, ids)
        return lesson

    def _number(self, dice: random.Random, at: int) -> int:
        """A step of a story: one that the draft got wrong, where it did."""
        own = self._mistakes.steps(at)
        return dice.choice(list(own)) if own and dice.random() < _OWN else dice.randrange(len(self._taught[at].steps))

    def _proposed(self, dice: random.Random, at: int, number: int) -> str:
        """A wrong step: the draft's own where it made one, or a slip."""
        own = self._mistakes.steps(at).get(number)
        return dice.choice(own) if own and dice.random() < _OWN else slip(dice, self._taught[at], number)

    def _score(self, dice: random.Random, at: int) -> Lesson:
        return self._judged(dice, at, prompts.score_question(self._tokenizer), rubric=False)

    def _apart(self, dice: random.Random, at: int) -> Lesson:
        return self._judged(dice, at, prompts.short_score_question(self._tokenizer), rubric=True)

    def _judged(self, dice: random.Random, at: int, question: Question, *, rubric: bool) -> Lesson:
        story = self._taught[at]
        number = self._number(dice, at)
        expected = story.step(number)
        text = expected if dice.random() < 0.5 else self._proposed(dice, at, number)
        lesson = self._opened(story, number, rubric=rubric)
        right = lesson.judge(self._tokenizer.encode(text), self._tokenizer.encode(expected))
        lesson.behind(question.ids, 1, right=right)
        lesson.right, lesson.scored = (question.option_ids[_RIGHT_DIGIT if right else _WRONG_DIGIT],), True
        return lesson

    def _choose(self, dice: random.Random, at: int) -> Lesson | None:
        story = self._taught[at]
        number = self._number(dice, at)
        texts = self._candidates(
            dice,
            _MOST_CANDIDATES,
            story.steps[number],
            lambda: self._proposed(dice, at, number).replace(THINK_END, "").strip(),
        )
        question = prompts.step_choice_question(self._tokenizer, texts)
        return self._among(self._opened(story, number), question, texts, story.steps[number])

    def _chains(self, dice: random.Random, at: int) -> Lesson | None:
        story = self._taught[at]
        whole = "".join(story.step(i) for i in range(len(story.steps))).replace(THINK_END, "").strip()

        def wrong() -> str:
            number = self._number(dice, at)
            told = [story.step(i) for i in range(len(story.steps))]
            told[number] = self._proposed(dice, at, number)
            return "".join(told).replace(THINK_END, "").strip()

        texts = self._candidates(dice, _MOST_CHAINS, whole, wrong)
        question = prompts.chain_choice_question(self._tokenizer, story.problem, texts, may_reject=True)
        return self._among(Lesson(), question, texts, whole)

    def _candidates(self, dice: random.Random, most: int, right: str, wrong: Callable[[], str]) -> list[str]:
        """Distinct texts in random order; in two of three cases the right one is among them."""
        n = dice.randint(1, most)
        texts = [right] if dice.random() < 0.67 else []
        for _ in range(4 * n):
            if len(texts) < n and (text := wrong()) and text not in [right, *texts]:
                texts.append(text)
        texts = texts or [right]
        dice.shuffle(texts)
        return texts

    def _among(self, lesson: Lesson, question: Question, texts: Sequence[str], right: str) -> Lesson | None:
        """The question with its candidates marked, each where it stands in the question's tokens."""
        expected = self._tokenizer.encode(right)
        read, chosen = 0, len(texts)
        behind: tuple[int, bool] | None = None
        for i, text in enumerate(texts):
            ids = self._tokenizer.encode(text)
            start = next((j for j in range(read, len(question.ids)) if list(question.ids[j : j + len(ids)]) == ids), -1)
            if start <= read:
                return None
            self._pass(lesson, question.ids[read:start], behind)
            is_right = lesson.judge(ids, expected, i + 1)
            behind, read = (i + 1, is_right), start + len(ids)
            chosen = i if is_right else chosen
        self._pass(lesson, question.ids[read:], behind)
        lesson.right = (question.option_ids[chosen],)
        return lesson

    @staticmethod
    def _pass(lesson: Lesson, ids: Sequence[int], behind: tuple[int, bool] | None) -> None:
        if behind is None:
            lesson.read(ids)
        else:
            lesson.behind(ids, behind[0], right=behind[1])
