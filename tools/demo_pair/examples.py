"""Training examples for the pair: token ids, with labels for each token.

Every example consists of exactly the ids that the harness sends (harness.prompts), so that training matches use:
solving, scoring a step (SpecReason, section 4.1), choosing a step among candidates or rejecting them (SpecCoT,
equation 4), choosing a whole chain or "all wrong" (SCoT, section 3.4).

A verdict alone is too weak a signal for a small model: one bit after a hundred tokens. So each judged token has
auxiliary labels for what a judge would know at that point (see `Example`). `tools.demo_pair.network` trains one layer
on each label.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness import prompts
from harness.prompts import BUILT_IN, THINK_BRIDGE, THINK_END, Question, StepChoice, demo_prompts
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair.misreadings import misreading
from tools.demo_pair.mistakes import Mistakes, corrupted_step
from tools.demo_pair.stories import LEVELS, Level, Story
from tools.demo_pair.values import Values

Kind = Literal["solve", "score", "apart", "choose", "chains", "reward"]
KINDS: tuple[Kind, ...] = ("solve", "score", "apart", "choose", "chains", "reward")
"""apart: a two-word question for a score, after a prompt that contains the rubric, as in SpecCoT's separate verdicts.
reward: the question that a reward model is asked about the last step.
"""
SCORES: tuple[Kind, ...] = ("score", "apart")
IGNORED = -100
"""No label; torch's cross entropy ignores it."""
_CANDIDATES, _CHAINS = (1, 1, 2, 2, 2), (1, 1, 1)
"""Weights of questions with 1, 2, … step candidates, and of questions with 1, 2, … chains; questions with more
candidates are harder to learn.
"""
_OWN_MISTAKES = 0.8
"""Share of the draft's own mistakes among the wrong steps that are not misreadings."""
_MISREADINGS = 0.35
"""Share of misreadings among the wrong steps, where the story has a misreading for the step."""
_DEMO_PROMPTS_SHARE = 0.7
"""Share of the questions about step candidates that have the demo's wording; the others have the built-in wording."""
_RIGHT_AMONG_SHARE = 0.6
"""Share of questions with the right step or chain among the candidates."""
_HIGHEST_DIGIT = 9
_ANSWER_SHARE, _SCORED_ANSWER_SHARE = 0.15, 0.05
"""Share of final answers among the steps rated by the reward model, and among scored steps."""
_UNCLOSED_SHARE, _UNCLOSED_JUDGED_SHARE = 0.25, 0.1
"""Share of solutions, and of judged stories, in which the last step lacks the end of the thought, which then follows as
a separate step.
"""
_GOOD, _BAD = 0, 1
"""Options of the reward question."""
_RIGHT_SHARE, _RIGHT_REWARD_SHARE = 0.5, 0.7
"""Share of right steps among scored steps, and among the steps rated by the reward model. The second share is closer to
that of the draft's steps, because a probability is calibrated only for the share of right steps in training.
"""


@dataclass(slots=True)
class Example:
    """Token ids with labels for each; IGNORED where there is no label. All lists have the same length."""

    ids: list[int] = field(default_factory=list)
    next_ids: list[int] = field(default_factory=list)
    """The next token according to the right solution."""
    correct_ids: list[int] = field(default_factory=list)
    """The token that should be here according to the right solution."""
    is_first_error: list[int] = field(default_factory=list)
    """1 at the first wrong token of a judged text, else 0."""
    is_after_error: list[int] = field(default_factory=list)
    """1 from the first wrong token on, else 0."""
    candidate: list[int] = field(default_factory=list)
    """Number, from 1, of the candidate that this token belongs to."""
    right_candidate: list[int] = field(default_factory=list)
    """On the token after a candidate: the candidate's number if it is right, else 0."""
    verdict_ids: tuple[int, ...] = ()
    """The tokens that are a correct verdict after the last token; empty without a question."""
    is_score: bool = False
    """Whether the verdict is a score."""

    def append_context(self, ids: Sequence[int]) -> None:
        """Append tokens without labels."""
        self.ids += ids
        for labels in (
            self.next_ids, self.correct_ids, self.is_first_error, self.is_after_error, self.candidate,
            self.right_candidate,
        ):  # fmt: skip
            labels.extend([IGNORED] * len(ids))

    def append_judged(self, ids: Sequence[int], expected: Sequence[int], number: int = 1) -> bool:
        """Append the text of candidate `number`, labelled against the expected text; return whether it is right."""
        start = len(self.ids)
        self.append_context(ids)
        mismatch = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), None)
        wrong_at = min(len(ids), len(expected)) if mismatch is None else mismatch
        for i in range(len(ids)):
            at = start + i
            if i <= wrong_at and i < len(expected):
                self.next_ids[at - 1] = self.correct_ids[at] = expected[i]
            self.is_first_error[at] = int(i == wrong_at)
            self.is_after_error[at] = int(i >= wrong_at)
            self.candidate[at] = number
        if wrong_at == len(ids) < len(expected):
            self.next_ids[-1] = expected[wrong_at]  # the text ends too early
        return wrong_at == len(ids) == len(expected)

    def append_after_candidate(self, ids: Sequence[int], number: int, *, is_right: bool) -> None:
        """Append the context after candidate `number`; its first token is labelled with the candidate's correctness."""
        at = len(self.ids)
        self.append_context(ids)
        self.is_after_error[at], self.candidate[at] = int(not is_right), number
        self.right_candidate[at] = number if is_right else 0


class Curriculum:
    """An endless, reproducible sequence of examples, made from stories and mistakes."""

    def __init__(
        self,
        tokenizer: HFTokenizer,
        stories: Sequence[Story],
        mistakes: Mistakes,
        shares: Mapping[Kind, float],
        seed: int,
        levels: Mapping[Level, float] | None = None,
        values: Values | None = None,
    ) -> None:
        """`mistakes` and `values`: in the order of `stories`, which cycle through the levels.

        `shares`: the share of each kind of example. `levels`: the share of each level; None: equal shares. Without
        `values`, the label of a right step is the score 9 and that of a wrong one is 0.
        """
        self._tokenizer, self._stories, self._mistakes, self._seed = tokenizer, stories, mistakes, seed
        self._values = values or Values()
        self._kinds, self._weights = list(shares), list(shares.values())
        self._levels = [1.0 if levels is None else levels.get(level, 0.0) for level in LEVELS]

    def example(self, number: int) -> Example | None:
        """Return example `number`, the same at each call; None if a candidate's tokens alone differ from its tokens in
        the question.
        """
        rng = random.Random(f"{self._seed}/{number}")
        [kind] = rng.choices(self._kinds, self._weights)
        [level] = rng.choices(range(len(LEVELS)), self._levels)
        at = rng.randrange(level, self._stories_for(kind, rng), len(LEVELS))
        makers: dict[Kind, Callable[[random.Random, int], Example | None]] = {
            "solve": self._solve, "score": self._score, "apart": self._apart, "choose": self._choose,
            "chains": self._chains, "reward": self._reward,
        }  # fmt: skip
        return makers[kind](rng, at)

    def _stories_for(self, kind: Kind, rng: random.Random) -> int:
        """Return the number of stories, from the first on, from which an example's story is chosen."""
        if kind != "solve" and len(self._mistakes) and rng.random() < _OWN_MISTAKES:
            return len(self._mistakes)
        return len(self._values) if kind in SCORES and len(self._values) else len(self._stories)

    def _opening(self, story: Story, steps: int, *, rubric: bool = False) -> Example:
        """Return an example with the problem and the first `steps` steps of its solution."""
        example = Example()
        example.append_context(prompts.opening(self._tokenizer, story.problem, rubric=rubric)[0])
        for number in range(steps):
            self._append_step(example, story, number, story.step(number))
        return example

    def _append_step(self, example: Example, story: Story, number: int, text: str) -> bool:
        """Append a text in place of a step, with labels; return whether it is right.

        A last step without the end of the thought is right, but the label for the token after its sentence is still the
        end of the thought.
        """
        ids = self._tokenizer.encode(text)
        is_right = example.append_judged(ids, self._tokenizer.encode(story.step(number)))
        if is_right and story.lacks_end(number):
            closed = self._tokenizer.encode(story.steps[number] + THINK_BRIDGE)
            example.next_ids[-2], example.correct_ids[-1] = closed[len(ids) - 1], IGNORED
        return is_right

    def _story(self, rng: random.Random, at: int, unclosed: float = _UNCLOSED_JUDGED_SHARE) -> Story:
        """Return a story, which is unclosed with probability `unclosed`."""
        return replace(self._stories[at], is_unclosed=rng.random() < unclosed)

    def _solve(self, rng: random.Random, at: int) -> Example:
        story = self._story(rng, at, _UNCLOSED_SHARE)
        example = self._opening(story, story.end, rubric=rng.random() < 0.1)
        end = self._tokenizer.eos_token_id
        assert end is not None
        ids = [*self._tokenizer.encode(story.conclusion), end]
        example.append_judged(ids, ids)
        return example

    def _number(self, rng: random.Random, at: int, story: Story) -> int:
        """Return the number of a random step, preferring steps that the draft got wrong; in an unclosed story, the
        number of the last step or of the closing step.
        """
        last = len(story.steps) - 1
        if story.is_unclosed:
            return rng.choice((last, last + 1))
        own = [number for number in self._mistakes.steps(at) if number <= last]
        return rng.choice(own) if own and rng.random() < _OWN_MISTAKES else rng.randrange(last + 1)

    def _wrong_step(self, rng: random.Random, at: int, story: Story, number: int) -> str:
        """Return a wrong text for a step: a misreading, one of the draft's own mistakes, or a corrupted step."""
        if number < story.end and rng.random() < _MISREADINGS and (text := misreading(rng, story, number)) is not None:
            return text
        own = None if number == story.end else self._mistakes.steps(at).get(number)
        return rng.choice(own) if own and rng.random() < _OWN_MISTAKES else corrupted_step(rng, story, number)

    def _score(self, rng: random.Random, at: int) -> Example:
        return self._scored_step(rng, at, prompts.score_question(self._tokenizer), rubric=False)

    def _apart(self, rng: random.Random, at: int) -> Example:
        return self._scored_step(rng, at, prompts.short_score_question(self._tokenizer), rubric=True)

    def _scored_step(self, rng: random.Random, at: int, question: Question, *, rubric: bool) -> Example:
        story = self._story(rng, at)
        number = story.end if rng.random() < _SCORED_ANSWER_SHARE else self._number(rng, at, story)
        example, text = self._judged_step(rng, at, story, number, question, _RIGHT_SHARE, rubric=rubric)
        value = self._values.of(at, number, text, is_right=story.step(number) == text)
        example.verdict_ids = (question.option_ids[round(_HIGHEST_DIGIT * value)],)
        example.is_score = True
        return example

    def _reward(self, rng: random.Random, at: int) -> Example:
        question = prompts.reward_question(self._tokenizer)
        story = self._story(rng, at)
        number = story.end if rng.random() < _ANSWER_SHARE else self._number(rng, at, story)
        example, text = self._judged_step(rng, at, story, number, question, _RIGHT_REWARD_SHARE)
        is_right = text == story.step(number)
        example.verdict_ids = (question.option_ids[_GOOD if is_right else _BAD],)
        # Every token of the question gets the label of the last one, because one label in a hundred tokens is too few.
        example.is_after_error[-len(question.ids) :] = [int(not is_right)] * len(question.ids)
        return example

    def _judged_step(
        self,
        rng: random.Random,
        at: int,
        story: Story,
        number: int,
        question: Question,
        right_share: float,
        *,
        rubric: bool = False,
    ) -> tuple[Example, str]:
        """Return an example with a question about a step after right steps, but without the verdict, and the step's
        text.

        The step after the last one is the final answer.
        """
        text = story.step(number) if rng.random() < right_share else self._wrong_step(rng, at, story, number)
        example = self._opening(story, number, rubric=rubric)
        is_right = self._append_step(example, story, number, text)
        example.append_after_candidate(question.ids, 1, is_right=is_right)
        return example, text

    def _choose(self, rng: random.Random, at: int) -> Example | None:
        story = self._story(rng, at)
        number = self._number(rng, at, story)
        wording = demo_prompts() if rng.random() < _DEMO_PROMPTS_SHARE else BUILT_IN
        choice = wording.step_choice
        right = _as_shown(story.step(number), choice)
        texts = self._candidates(
            rng, _CANDIDATES, right, lambda: _as_shown(self._wrong_step(rng, at, story, number), choice)
        )
        question = prompts.step_choice_question(self._tokenizer, texts, wording)
        return self._append_question(self._opening(story, number), question, texts, right)

    def _chains(self, rng: random.Random, at: int) -> Example | None:
        story = self._stories[at]
        right_chain = "".join(story.step(i) for i in range(len(story.steps))).replace(THINK_END, "").strip()

        def wrong_chain() -> str:
            number = self._number(rng, at, story)
            steps = [story.step(i) for i in range(len(story.steps))]
            steps[number] = self._wrong_step(rng, at, story, number)
            return "".join(steps).replace(THINK_END, "").strip()

        texts = self._candidates(rng, _CHAINS, right_chain, wrong_chain)
        question = prompts.chain_choice_question(self._tokenizer, story.problem, texts, may_reject=True)
        return self._append_question(Example(), question, texts, right_chain)

    def _candidates(
        self, rng: random.Random, weights: Sequence[int], right: str, wrong: Callable[[], str]
    ) -> list[str]:
        """Return distinct texts in random order. With probability _RIGHT_AMONG_SHARE, they include the right one.

        `weights`: weights of 1, 2, … texts.
        """
        [n] = rng.choices(range(1, len(weights) + 1), weights)
        texts = [right] if rng.random() < _RIGHT_AMONG_SHARE else []
        for _ in range(4 * n):
            if len(texts) < n and (text := wrong()) and text not in [right, *texts]:
                texts.append(text)
        texts = texts or [right]
        rng.shuffle(texts)
        return texts

    def _append_question(
        self, example: Example, question: Question, texts: Sequence[str], right: str
    ) -> Example | None:
        """Append a question, with labels on the tokens of its candidates. Return None if a candidate's tokens are not
        found.
        """
        expected = self._tokenizer.encode(right)
        end, choice = 0, len(texts)
        previous: tuple[int, bool] | None = None
        for i, text in enumerate(texts):
            ids = self._tokenizer.encode(text)
            start = next((j for j in range(end, len(question.ids)) if list(question.ids[j : j + len(ids)]) == ids), -1)
            if start <= end:
                return None
            self._append_between(example, question.ids[end:start], previous)
            is_right = example.append_judged(ids, expected, i + 1)
            previous, end = (i + 1, is_right), start + len(ids)
            choice = i if is_right else choice
        self._append_between(example, question.ids[end:], previous)
        example.verdict_ids = (question.option_ids[choice],)
        return example

    @staticmethod
    def _append_between(example: Example, ids: Sequence[int], previous: tuple[int, bool] | None) -> None:
        """Append context; `previous`: number and correctness of the candidate directly before the context."""
        if previous is None:
            example.append_context(ids)
        else:
            example.append_after_candidate(ids, previous[0], is_right=previous[1])


def _as_shown(text: str, choice: StepChoice) -> str:
    """Return a step candidate as a question with several candidates shows it."""
    marked = text if choice.closing is None else prompts.marked_candidate(text, choice.closing)
    return marked.replace(THINK_END, "").strip() or choice.blank
