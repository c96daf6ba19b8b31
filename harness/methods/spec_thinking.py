"""Speculative Thinking: the target takes over when the draft reflects (Yang et al., arXiv 2504.12329, section 3).

The draft writes the chain. After every step separator, the draft's next n1 tokens are searched for keywords that
affirm, reflect or verify. If one is found, the target writes n1 tokens in place of the draft's, and n2 more if these
announce a verification. After c reflecting thoughts, the target searches for mistakes: it continues a fixed
sentence (`recap`) with n3 tokens. The draft continues wherever the target stopped.

The paper's abstract and summaries of it were consulted; the names n1, n2, n3 and c are the paper's. Defaults, keywords
and other details follow the authors' code (uservan/speculative_thinking, its setting for a 1.5B draft and a 32B
target). A thought reflects if it has keywords that reflect or verify, and at least as many of them as keywords that
affirm. Keywords match inside words and ignore case. Only thoughts taken over by the target count towards c; c and n3
grow with every search for mistakes.

Differences from the code:
- If the target does not take over, the draft's n1 tokens are kept (code: generated again).
- A step separator ends the draft's n1 tokens.
- The n2 tokens of a verification are part of the thought.
- If the target stops at a separator, the draft's next n1 tokens are searched, too.
- The sentence that starts a search for mistakes is this project's (`recap`).
- Sampling uses the run's settings (code: temperature 0.6, top-p 0.95 and top-k 50).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates
from harness.methods.method import Method, check_range, flag, parameter
from harness.prompts import THINK_END
from harness.recording import Model
from harness.trace import Candidate, Decision

_MORE_RECAP_TOKENS, _MOST_RECAP_TOKENS = 25, 200
"""Tokens added to n3 with every search for mistakes, and the maximum of n3, as in the authors' code."""
_MORE_REFLECTIONS, _MOST_REFLECTIONS = 5, 30
"""Thoughts added to c with every search for mistakes, and the maximum of c, as in the authors' code."""

_MOST_CHARACTERS = 1000


@dataclass(frozen=True)
class SpecThinking(Method):
    """Speculative Thinking: the draft writes, and the target takes over thoughts that contain certain keywords."""

    n1: int = parameter(
        20, help="Number of draft tokens searched for keywords. If the target takes over, it writes as many instead."
    )
    n2: int = parameter(
        125, help="Number of tokens that the target adds if its --n1 tokens contain a verification keyword; 0: none."
    )
    n3: int = parameter(
        125,
        help="Number of tokens that the target writes in its first search for mistakes. The number grows by 25 with "
        "every search, up to 200, as in the authors' code.",
    )
    c: int = parameter(
        15,
        help="Number of reflecting thoughts that the target takes over before its first search for mistakes. The count "
        "then restarts, and the number grows by 5, up to 30, as in the authors' code.",
    )
    affirmation_words: str = parameter(
        "yeah, yes, final answer, confident", help="Comma-separated keywords that mark a thought as affirming."
    )
    reflection_words: str = parameter(
        "wait, alternatively, hold on, another", help="Comma-separated keywords that mark a thought as reflecting."
    )
    verification_words: str = parameter(
        "verify, think again, recap, check", help="Comma-separated keywords that mark a thought as verifying."
    )
    recap: str = parameter(
        "Let me look for a mistake in the steps so far:",
        help="Sentence that starts the target's search for mistakes. The default wording is this project's.",
    )
    begin_tokens: int = parameter(
        0,
        help="Number of tokens that the target writes before the draft starts. The authors' code uses 100 for drafts "
        "that are not reasoning models.",
    )
    takeover: Literal["keywords", "always"] = parameter(
        "keywords",
        help="keywords: the target takes over thoughts that contain a keyword. always: the target takes over after "
        "every separator, as in the authors' code for drafts that are not reasoning models.",
    )
    step_tokens: int = parameter(
        1024, help="Maximum length of a draft step, in tokens. The default is from the authors' code."
    )

    def __post_init__(self) -> None:
        for name in ("n1", "n3", "c", "step_tokens"):
            check_range(name, getattr(self, name), 1, None)
        for name in ("n2", "begin_tokens"):
            check_range(name, getattr(self, name), 0, None)
        for name in ("affirmation_words", "reflection_words", "verification_words", "recap"):
            if len(getattr(self, name)) > _MOST_CHARACTERS or THINK_END in getattr(self, name):
                raise ValueError(f"{flag(name)} must have at most {_MOST_CHARACTERS} characters and no {THINK_END}")

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        if self.begin_tokens and not chain.steps:
            await chain.write(target, "guidance", max_tokens=self.begin_tokens, stop=())
        while not chain.answered:
            if not chain.steps or not chain.at_separator:
                await chain.write(draft, "draft", max_tokens=self.step_tokens)
                continue
            most = min(self.c + _MORE_REFLECTIONS * self._num_recaps(chain), max(self.c, _MOST_REFLECTIONS))
            if (reflections := self._reflections(chain)) >= most:
                await self._look_for_mistakes(chain, target, Decision.at_most("reflections", reflections, most - 1))
            else:
                await self._next_thought(chain, draft, target)

    async def _next_thought(self, chain: Chain, draft: Model, target: Model) -> None:
        """Let the draft start a thought; the target takes over if the start has a keyword, or always (`takeover`)."""
        [begun] = await chain.propose(draft, 1, max_tokens=min(self.n1, self.step_tokens))
        keywords = f"{self.affirmation_words},{self.reflection_words},{self.verification_words}"
        decision = Decision.at_most("keywords", _count(begun.text, keywords), 0)
        if self.takeover == "always":
            decision = Decision("keywords", decision.value, None, accepted=False, accepts_below=True)
        if decision.accepted:
            more = self.step_tokens - begun.num_tokens
            whole = await chain.continued(draft, begun, max_tokens=more, purpose="draft") if more > 0 else begun
            [candidate] = as_candidates([whole])
            candidate.accepted = True
            chain.accept(draft, "draft", whole, [candidate], decision=decision)
        else:
            await self._take_over(chain, target, as_candidates([begun]), decision)

    async def _take_over(self, chain: Chain, target: Model, refused: Sequence[Candidate], decision: Decision) -> None:
        [taken] = await chain.propose(target, 1, max_tokens=self.n1, purpose="fallback", stop=())
        if self.n2 and _count(taken.text, self.verification_words):
            taken = await chain.continued(target, taken, max_tokens=self.n2, purpose="fallback", stop=())
        chain.accept(target, "fallback", taken, refused, decision=decision)

    async def _look_for_mistakes(self, chain: Chain, target: Model, decision: Decision) -> None:
        tokens = min(self.n3 + _MORE_RECAP_TOKENS * self._num_recaps(chain), max(self.n3, _MOST_RECAP_TOKENS))
        await chain.write(target, "fallback", max_tokens=tokens, stop=(), opening=self.recap, decision=decision)

    def _reflects(self, text: str) -> bool:
        """Return whether a thought has reflecting or verifying keywords, and at least as many as affirming ones."""
        reflecting = _count(text, f"{self.reflection_words},{self.verification_words}")
        return reflecting > 0 and reflecting >= _count(text, self.affirmation_words)

    def _reflections(self, chain: Chain) -> int:
        """Return how many reflecting thoughts the target has taken over since its last search for mistakes."""
        since = takewhile(lambda step: not _is_recap(step.decision), reversed(chain.steps))
        return sum(step.role == "fallback" and self._reflects(step.text) for step in since)

    def _num_recaps(self, chain: Chain) -> int:
        return sum(_is_recap(step.decision) for step in chain.steps)


def _is_recap(decision: Decision | None) -> bool:
    return decision is not None and decision.kind == "reflections"


def _count(text: str, words: str) -> int:
    return sum(text.lower().count(word.strip().lower()) for word in words.split(",") if word.strip())
