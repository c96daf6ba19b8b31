"""Early exit: end a thought once trial answers are certain (Fu et al., arXiv 2412.20993; Yang et al., 2504.15895).

While a model thinks, trial answers are generated after the thought so far, and discarded. Once a trial answer is
certain, the thought is closed and the final answer is written. There are two criteria:

- `agreement`, from Dynasor (Fu et al.): a trial answer every 64 tokens; certain if the last 3 agree. Empty answers and
  answers with a word of doubt agree with no other. Follows the authors' code (hao-ai-lab/Dynasor,
  dynasor/core/cot.py, effort level "mid"; the other levels use 2, 5 or 8 answers, and 32 tokens).
- `confidence`, from DEER (Yang et al.): a greedy trial answer in place of each transition word ("Wait"); certain if the
  mean probability of its tokens is at least 0.95. Otherwise the word starts the next thought. Follows the authors' code
  (iie-ycx/DEER, vllm-deer.py, policy avg1).

The papers' full texts were not consulted: this follows their code and DEER's abstract. Both papers use one model.
With a pair, `writer` thinks; `prober` writes the trial answers, closes the thought and answers. For example, the target
works alone (as published), the draft works alone, or the draft thinks until the target is certain. The method does not
judge drafted steps.

Differences from the authors' code:
- Trial answers follow the wording's `answer_bridge`, which must open a brace, and are read up to its closing brace.
  DEER's code also accepts unclosed answers.
- Answers are equal if they differ only in white space. Dynasor's code compares them as formulas.
- Dynasor's code also probes before the thought and in the answer, samples trial answers at temperature 0.6 and top-p
  0.95, continues thinking meanwhile, and returns the agreed answer itself. Here the prober answers after the closed
  thought, as in DEER.
- DEER's limits (ten trial answers, thinking up to 90 % of the budget) are omitted: a spent budget ends the chain, as in
  every method. DEER's settings for Qwen3 are omitted, too: the geometric mean, and `</think>` after the trial answer.
  DEER's code samples trial answers at temperature 1; here they are greedy.
- If the writer closes the thought, the prober still writes the answer. Two equal consecutive steps end the chain as
  repeated, as in every method; small intervals make this more likely.

Every trial answer that a step follows is recorded with its decision, as a candidate of that step. An accepted trial
answer ended the thought, so the fallback rate is the share of trial answers that did not end it.

A plain model has no transition words: `confidence` probes after each step, and the model answers directly after the
answer bridge.
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
"""Words, or parts of words, that mark a trial answer as uncertain (Dynasor's code)."""
_CRITERIA = {"window": "agreement", "interval": "agreement", "certainty": "confidence", "transition": "confidence"}


@dataclass(frozen=True)
class EarlyExit(Method):
    """Early exit: think, try answers, and close the thought once a trial answer is certain."""

    criterion: Literal["agreement", "confidence"] = parameter(
        "agreement",
        help="When to end the thought. agreement: the last --window trial answers are equal, without words "
        "of doubt such as wait (Dynasor). "
        "confidence: a trial answer's tokens have a mean probability of at least --certainty (DEER).",
    )
    window: int = parameter(
        3, help="Number of consecutive trial answers that must agree. The default is from Dynasor's code."
    )
    interval: int = parameter(
        64, help="Number of thought tokens between two trial answers. The default is from Dynasor's code."
    )
    certainty: float = parameter(
        0.95,
        help="End the thought if a trial answer's tokens have at least this mean probability, from 0 to 1. "
        "The default is DEER's.",
    )
    transition: str = parameter(
        "Wait",
        help="Word in a reasoning model's thought at which a trial answer is tried. The default is from DEER's code, "
        "which also uses 'Alternatively'. If this is empty or the writer is not a reasoning model, a trial answer is "
        "tried after every step.",
    )
    probe_tokens: int = parameter(
        20, help="Maximum length of a trial answer, in tokens. The default is from the code of both papers."
    )
    writer: Literal["target", "draft"] = parameter("target", help="The model that writes the thought.")
    prober: Literal["target", "draft"] = parameter(
        "target", help="The model that writes the final answer, and the trial answers that decide when thinking ends."
    )

    def __post_init__(self) -> None:
        for name in ("window", "interval", "probe_tokens"):
            check_range(name, getattr(self, name), 1, None)
        check_range("certainty", self.certainty, 0, 1)
        for name, criterion in _CRITERIA.items():
            if criterion != self.criterion and getattr(self, name) != getattr(EarlyExit, name):
                raise ValueError(f"{flag(name)} requires --criterion {criterion}")

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target") if self.writer != self.prober else (self.writer,)

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if wording.answer_bridge.count("{") <= wording.answer_bridge.count("}"):
            raise ValueError("answer_bridge must open a brace that the trial answer closes, such as \\boxed{")
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
                await self._think(chain, writer)  # ends the sample: nothing could follow a trial answer
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
        """Decide whether a trial answer ends the thought; earlier trial answers are read from the recorded steps."""
        if self.criterion == "confidence":
            return Decision.at_least("confidence", _confidence(trial, tokenizer), self.certainty)
        texts = [trial.text, *(step.candidates[0].text for step in reversed(chain.steps) if step.candidates)]
        undoubted = takewhile(lambda text: not any(word in text.lower() for word in _DOUBT), texts)
        answer = _answer(trial.text)
        agreeing = len([*takewhile(lambda text: answer and _answer(text) == answer, undoubted)])
        return Decision.at_least("agreement", agreeing, self.window)


def _confidence(trial: Completion, tokenizer: Tokenizer) -> float:
    """Return the mean probability of a trial answer's tokens up to its closing brace; 0 if it has no answer."""
    assert trial.token_logprobs is not None
    counts = range(1, len(trial.token_ids) + 1)
    num_tokens = next((n for n in counts if _answer(tokenizer.decode(trial.token_ids[:n]))), 0)
    return fmean(map(math.exp, trial.token_logprobs[:num_tokens])) if num_tokens else 0.0


def _answer(text: str) -> str:
    """Return the text before the brace that closes the bridge's open brace, without white space; empty if none."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return "".join(text[:i].split())
    return ""
