"""Early exit: a thought ends once trial answers are certain (Fu et al., arXiv 2412.20993; Yang et al., 2504.15895).

A model thinks. Now and then a trial answer is asked for behind what it has thought, and thrown away. Once that is
certain, the thought is closed and answered, so that a model that has its answer thinks no longer.

- `agreement`, of Dynasor (Fu et al.): every 64 tokens a trial answer is drawn, and the last 3 are the same. One that is
  empty or holds a word of doubt is the same as none. From its program (hao-ai-lab/Dynasor, dynasor/core/cot.py, effort
  "mid"; its other efforts: 2, 5 or 8 answers, 32 tokens).
- `confidence`, of DEER (Yang et al.): where a transition begins ("Wait"), a trial answer is written greedily in its
  place, and the mean probability of its tokens is at least 0.95. From its program (iie-ycx/DEER, vllm-deer.py, policy
  avg1). Where the model goes on, the word opens its next thought.

The papers' bodies have not been read: this follows their programs, DEER's abstract, and the beginning of what
Dynasor's authors wrote about it. Both know one model. Over a pair, `writer` thinks, and
`prober` gives the trial answers, closes the thought and answers: the target alone, as published; the draft alone; or
the draft thinks until the target is certain. It is not combined with a method that drafts steps and judges them.

What differs from the programs: a trial answer is worded as the wording's `answer_bridge`, which has to open a brace,
and counts up to the brace that closes it (in DEER's program one without that brace counts, too); equal answers have the
same characters besides white space (Dynasor's program compares them as formulas). Dynasor's program also asks before
anything is thought and in the answer, draws trial answers at temperature 0.6 and top-p 0.95 whatever the run's are,
thinks on while one is written, and returns the agreed answer itself, where here the prober answers behind the closed
thought, as in DEER's. Left out are DEER's limits of ten trial answers and of thinking to 90 % of the budget (here a
spent budget ends the chain, as in every method) and what its program does for Qwen3: the geometric mean, and
`</think>` behind the trial answer. Its program draws trial answers at temperature 1, here the most probable tokens are
taken. A thought that closes itself ends there and is answered by the prober too. Two equal pieces in a row end the
chain as repeated, as in every method here, which small intervals meet.

Every trial answer is recorded as a candidate of the step behind it, if one follows, with a decision: accepted where it
ended the thought, so that the fallback rate is the share of trial answers that did not.

A plain model announces no transition: `confidence` asks behind each of its steps. Its exit is the answer bridge, behind
which it answers at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean
from typing import Any, Literal

from harness.chain import Chain, as_candidates
from harness.engine import Completion, Role, Tokenizer
from harness.methods.method import Method, check_range, flag, parameter
from harness.prompts import THINK_END, Prompts, Question
from harness.recording import Model
from harness.trace import Candidate, Decision

_DOUBT = ("wait", "hold", "but", "okay", "no", "hmm")
"""Words, or parts of them, of a trial answer that is not certain (Dynasor's program)."""
_CRITERIA = {"window": "agreement", "interval": "agreement", "certainty": "confidence", "transition": "confidence"}
"""The criterion that a parameter belongs to."""


@dataclass(frozen=True)
class EarlyExit(Method):
    """The hyper-parameters of both criteria. Calling it thinks, tries answers, and closes the thought early."""

    criterion: Literal["agreement", "confidence"] = parameter(
        "agreement",
        help="agreement: the last --window trial answers are the same (Dynasor). "
        "confidence: the trial answer's tokens have a mean probability of at least --certainty (DEER).",
    )
    window: int = parameter(3, help="Number of trial answers in a row that agree (Dynasor's program, effort mid).")
    interval: int = parameter(64, help="Tokens of thought between two trial answers (Dynasor's program, effort mid).")
    certainty: float = parameter(
        0.95, help="Lowest mean probability of a trial answer's tokens that ends the thought, from 0 to 1 (DEER)."
    )
    transition: str = parameter(
        "Wait",
        help="The word in a reasoning model's thought where a trial answer is tried (DEER's program; it also has "
        "Alternatively). Empty, and for plain models: at the end of every step.",
    )
    probe_tokens: int = parameter(20, help="Maximum length of a trial answer, in tokens (both programs).")
    writer: Literal["target", "draft"] = parameter("target", help="The model that thinks.")
    prober: Literal["target", "draft"] = parameter(
        "target", help="The model whose trial answers decide, and that writes the final answer."
    )

    def __post_init__(self) -> None:
        for name in ("window", "interval", "probe_tokens"):
            check_range(name, getattr(self, name), 1, None)
        check_range("certainty", self.certainty, 0, 1)
        for name, criterion in _CRITERIA.items():
            if criterion != self.criterion and getattr(self, name) != getattr(EarlyExit, name):
                raise ValueError(f"{flag(name)} belongs to --criterion {criterion}")

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target") if self.writer != self.prober else (self.writer,)

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if wording.answer_bridge.count("{") <= wording.answer_bridge.count("}"):
            raise ValueError("answer_bridge has to open a brace, which a trial answer closes, such as \\boxed{")
        yield from ()

    def verdict_tokens(self, token_budget: int) -> int:
        return self.probe_tokens

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        return token_budget + (self.probe_tokens if role == self.prober else 0)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        writer, prober = (draft if role == "draft" else target for role in (self.writer, self.prober))
        greedy, bridge = self.criterion == "confidence", chain.wording.answer_bridge
        if not chain.steps:
            await self._think(chain, writer)
        while chain.reasoning and not chain.answered:
            if not chain.may_continue([], writer):
                await self._think(chain, writer)  # ends the sample, without a trial answer that nothing could follow
            drawn: dict[str, Any] = {"temperature": 0.0, "token_logprobs": True} if greedy else {}
            [trial] = await chain.probe(prober, bridge, max_tokens=self.probe_tokens, **drawn)
            decision = self._decision(chain, trial, prober.tokenizer)
            [tried] = as_candidates([trial])
            tried.accepted = decision.accepted
            if decision.accepted:
                chain.close(prober, [tried], decision=decision)
            else:
                await self._think(chain, writer, [tried], decision)
        if not chain.answered:
            await chain.answer(prober)

    async def _think(
        self, chain: Chain, writer: Model, tried: Sequence[Candidate] = (), decision: Decision | None = None
    ) -> None:
        """Let the writer think on to where the next trial answer is due."""
        at_interval = self.criterion == "agreement"
        limit = self.interval if at_interval else chain.limits.token_budget
        word = self.transition if writer.tokenizer.thinks and not at_interval else ""
        stop = (THINK_END,) if at_interval else (word or chain.wording.step_separator, THINK_END)
        opening = word if chain.steps and chain.steps[-1].finish == "stop" else ""
        begun = Completion(tuple(writer.tokenizer.encode(opening)), opening, "length", num_tokens=0)
        thought = await chain.continued(writer, begun, max_tokens=limit, purpose="thought", stop=stop)
        if word and thought.finish == "stop" and THINK_END not in thought.text:
            text = thought.text.rpartition(word)[0]
            thought = replace(thought, text=text, token_ids=tuple(writer.tokenizer.encode(text)))
        chain.accept(writer, "thought", thought, tried, decision=decision)

    def _decision(self, chain: Chain, trial: Completion, tokenizer: Tokenizer) -> Decision:
        """Return whether a trial answer ends the thought: by its tokens, or by those before it, which steps record."""
        if self.criterion == "confidence":
            return Decision.at_least("confidence", _confidence(trial, tokenizer), self.certainty)
        texts = [trial.text, *(step.candidates[0].text for step in reversed(chain.steps) if step.candidates)]
        undoubted = takewhile(lambda text: not any(word in text.lower() for word in _DOUBT), texts)
        answer = _answer(trial.text)
        agreeing = len([*takewhile(lambda text: answer and _answer(text) == answer, undoubted)])
        return Decision.at_least("agreement", agreeing, self.window)


def _confidence(trial: Completion, tokenizer: Tokenizer) -> float:
    """Return the mean probability of a trial answer's tokens up to its closing brace; 0 where it has no answer."""
    assert trial.token_logprobs is not None
    counts = range(1, len(trial.token_ids) + 1)
    num_tokens = next((n for n in counts if _answer(tokenizer.decode(trial.token_ids[:n]))), 0)
    return fmean(map(math.exp, trial.token_logprobs[:num_tokens])) if num_tokens else 0.0


def _answer(text: str) -> str:
    """Return the text before the brace that closes an open one, without white space; empty where none closes it."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return "".join(text[:i].split())
    return ""
