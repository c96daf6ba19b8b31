"""Reconstruct the prompts of one step: rerun it with engines that return the recorded outputs.

No model runs. A sample can resume at any step, so the method sends the same requests as in the run. Replies that are
not in the trace (probes, drafts written ahead) are empty here; later requests in the step may then differ from those in
the run, which shows in the number of prompt tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from harness.chain import Limits, Stop
from harness.cli.messages import counted
from harness.engine import Choice, Completion, Finish, Generation, Likelihood, Rating, Role, Sampling, Timing, Tokenizer
from harness.methods import build
from harness.sample import run_sample
from harness.trace import Call, Candidate, Step, Trace, Verdict
from jobs.run.codes import method_of
from jobs.run.folder import RunFolder
from jobs.run.plan import tokenizer_of_role
from jobs.run.trace_files import counting_records

_COLUMNS = ("problem_id", "sample_index", "seed", "steps", "calls")
_UNTIMED = Timing(0.0, 0.0, 0.0, 0.0, 1)
_NO_LIMIT = 1 << 30
_COMPARED = ("purpose", "model", "n", "prompt_tokens")


@dataclass(frozen=True)
class SentCall:
    """One call with its prompts."""

    call: Call
    prompts: tuple[str, ...]
    """One prompt, or one for each concurrent request; empty for a call that was not repeated."""
    is_as_recorded: bool
    """False if the recorded call with this index differs in purpose, model, number of completions or prompt tokens, or
    if only one of the two calls exists."""


@dataclass
class _RecitingEngine:
    """An Engine that returns the recorded outputs of a step and stores the prompts."""

    role: Role
    tokenizer: Tokenizer
    step: Step
    candidates: list[Candidate]
    """Candidates of the step that have not been returned yet; all engines share this list."""
    context_tokens: int
    has_head: bool = False
    kv_tokens: int | None = None
    restarts: int = 0
    sent: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._verdicts = [verdict for verdict in self.step.verdicts if verdict.model == self.role]

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        self.sent.append(list(prompt))
        drafts = self.candidates[: sampling.n]
        del self.candidates[: sampling.n]
        completions = [self._completion(d.text, d.finish, d.num_tokens, d.mean_logprob) for d in drafts]
        if not drafts and self.step.author == self.role:
            completions.append(self._completion(self.step.text, self.step.finish, self.step.num_tokens, None))
        completions += [self._completion("", "eos", 1, None)] * (sampling.n - len(completions))
        return Generation(tuple(completions), len(prompt), 0, _UNTIMED)

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        self.sent.append(list(prompt))
        verdict = self._next_verdict(len(options))
        logprobs = verdict.logprobs if verdict else (-math.log(len(options)),) * len(options)
        return Choice(logprobs, len(prompt), 0, _UNTIMED)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        self.sent.append([*prompt, *continuation])
        return Likelihood((0.0,) * len(continuation), len(prompt) + len(continuation), 0, _UNTIMED)

    async def rate(self, prompt: Sequence[int]) -> Rating:
        self.sent.append(list(prompt))
        verdict = self._next_verdict(2)
        good, bad = verdict.logprobs if verdict else (0.0, 0.0)
        return Rating((good - bad,), len(prompt), 0, _UNTIMED)

    async def reset_prefix_cache(self) -> bool:
        return True

    async def close(self) -> None:
        pass

    def _next_verdict(self, num_options: int) -> Verdict | None:
        matching = self._verdicts and len(self._verdicts[0].logprobs) == num_options
        return self._verdicts.pop(0) if matching else None

    def _completion(self, text: str, finish: Finish, num_tokens: int, mean_logprob: float | None) -> Completion:
        ids, zeros = tuple(self.tokenizer.encode(text)), (0.0,) * num_tokens
        return Completion(ids, text, finish, num_tokens, mean_logprob, token_logprobs=zeros, entropies=zeros)


def prompts_of(run: RunFolder, problem_id: str, sample_index: int, step: int) -> list[SentCall]:
    """Return the calls of a finished sample's step with their prompts, decoded with the models' tokenizers.

    Raises ValueError for an unknown sample or step, or a missing tokenizer; BadMethod and trust.NotTrusted for code of
    a custom method.
    """
    plugin, spec = method_of(run), run.spec()
    recorded = _recorded(run, problem_id, sample_index)
    if not 0 <= step < len(recorded.steps):
        raise ValueError(f"--prompt {step}: the sample has {counted(len(recorded.steps), 'step')}, numbered from 0")
    method = build(plugin.name if plugin else spec.method, dict(spec.params))
    context = spec.engine.max_context or _NO_LIMIT
    taken, candidates = recorded.steps[step], list(recorded.steps[step].candidates)
    engines = {
        role: _RecitingEngine(role, tokenizer_of_role(spec, role), taken, candidates, context) for role in method.roles
    }
    [problem] = (problem for problem in run.problems() if problem.id == problem_id)
    limits = Limits(spec.temperature, spec.top_p, spec.token_budget, spec.sampling)
    again = Trace(recorded.sample_id, problem_id, sample_index, recorded.seed, steps=recorded.steps[:step])

    def stop(step: Step) -> None:
        raise Stop("budget")

    asyncio.run(run_sample(problem, method, engines, again, limits, stop, wording=spec.wording))
    of_step = [call for call in recorded.calls if call.step == step]
    return list(_sent([call for call in again.calls if call.step == step], of_step, engines))


def _recorded(run: RunFolder, problem_id: str, sample_index: int) -> Trace:
    for row in counting_records(run, _COLUMNS):
        if (row["problem_id"], row["sample_index"]) == (problem_id, sample_index):
            trace: Trace = TypeAdapter(Trace).validate_python(row)
            return trace
    raise ValueError(f"{run.path.name} has no finished sample {sample_index} of {problem_id}")


def _sent(calls: Sequence[Call], recorded: Sequence[Call], engines: Mapping[Role, _RecitingEngine]) -> list[SentCall]:
    """Assign prompts to calls: a call gets prompts of its engine until their lengths add up to its prompt tokens."""
    found, waiting = [], {role: list(engine.sent) for role, engine in engines.items()}
    for number, call in enumerate(calls):
        prompts, left = [], call.prompt_tokens
        while left > 0:
            prompts.append(waiting[call.model].pop(0))
            left -= len(prompts[-1])
        decoded = tuple(engines[call.model].tokenizer.decode(ids) for ids in prompts)
        was = recorded[number] if number < len(recorded) else None
        same = was is not None and all(getattr(was, name) == getattr(call, name) for name in _COMPARED)
        found.append(SentCall(call, decoded, same))
    return found + [SentCall(call, (), False) for call in recorded[len(calls) :]]
