"""Accuracy vs. token budget from one run: truncate its finished chains, close their reasoning and generate answers.

With a budget of b tokens, a chain generated in one piece is truncated after its first b tokens, as in a run with that
budget. A chain of steps is truncated after the last step that ends within the budget and is "not re-planned": a method
that plans by its budget would have generated other steps. A chain that failed or ended within the budget is unchanged
and keeps its verdict. Truncated chains are answered by the model that writes the run's answers; if answers are not
separate, by the target or, without a target, the draft. The answer is not counted in the budget.

The answers are a separate run (see `continuation`). Truncations of one chain are adjacent in the new run, so they share
the chain's prefix in the engine's cache.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from harness.chain.chain_ending import num_cut
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.engine import Completion, Json, Role, Tokenizer
from harness.problems.problem import DatasetOrigin, Problem
from harness.settings.declaration import Flags
from harness.trace import StepRole
from jobs.continuations import continuation
from jobs.continuations.continuation import Continuation
from jobs.preparation import PreparedLaunch
from jobs.run.endings import finished_records, num_unfinished
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder
from jobs.run.plan import tokenizer_of_role
from jobs.run.trace_files import FAILED, SampleRow, StepRow

_COLUMNS = ("problem_id", "stop_reason", "steps")
_WHOLE: StepRole = "chain"
"""Role of a step that is a whole chain generated in one piece by one model."""
_CHOOSES_WHOLE_CHAINS = "scot"
"""The method that chooses among several whole chains, which cannot be truncated to a budget."""


@dataclass(frozen=True)
class Cut:
    """A chain truncated to a budget."""

    text: str | None
    """The text up to the cut; None: the chain is unchanged, because it ended within the budget or failed."""
    num_tokens: int
    """Number of tokens of the truncated chain, as counted by the models that wrote its steps."""
    is_exact: bool
    """False for a chain of steps, which is truncated at a step boundary without re-planning for the budget."""


def cut(sample: SampleRow, budget: int, tokenizers: Mapping[Role, Tokenizer]) -> Cut:
    """Return a finished sample's chain truncated to a token budget."""
    steps = sample["steps"]
    is_exact = all(step["role"] == _WHOLE for step in steps)
    num_emitted = sum(step["num_tokens"] for step in steps)
    if (num_emitted <= budget and sample["stop_reason"] != "budget") or sample["stop_reason"] == FAILED:
        return Cut(None, min(num_emitted, budget), is_exact)
    text, left = "", budget
    for step in steps:
        is_begun_answer = step["role"] == "answer" and step["finish"] == "length"
        if step["num_tokens"] > left or is_begun_answer:
            if is_exact:
                text += _first(step, left, tokenizers[step["author"]])
                left = 0
            break
        text, left = text + step["text"], left - step["num_tokens"]
    return Cut(text, budget - left, is_exact)


def _first(step: StepRow, num_tokens: int, tokenizer: Tokenizer) -> str:
    """Return the text of a step's first tokens, without a partial character at the end."""
    ids = tuple(step["token_ids"][:num_tokens])
    text = tokenizer.decode(ids)
    return tokenizer.decode(ids[: len(ids) - num_cut(Completion(ids, text, "length", num_tokens), tokenizer)])


def plan(
    source: RunFolder, flags: Flags, *, budgets: Sequence[int], answer_tokens: int, is_preview: bool = False
) -> PreparedLaunch:
    """Truncate the chains of a run to token budgets and prepare the run that answers them, without writing that run.

    Journals of `source` are compacted, unless `is_preview`. `flags`: launch flags, e.g. for the location.
    Raises ValueError and the errors of a launch.
    """
    spec, budgets = source.spec(), sorted(set(budgets))
    if spec.method == _CHOOSES_WHOLE_CHAINS:
        raise ValueError(f"{source.path.name} chooses among whole drafted chains, which cannot be truncated")
    if budgets[-1] > spec.token_budget:
        raise ValueError(f"--budgets {budgets[-1]}: the chains have at most {spec.token_budget} tokens")
    known = {problem.id: problem for problem in source.problems()}
    if any(problem.beginning for problem in known.values()):
        raise ValueError(f"{source.path.name} continues another run; pass that run instead")
    samples = list(finished_records(source, _COLUMNS, writes=not is_preview, failed=True))
    steps = [step for sample in samples for step in sample["steps"]]
    authors = {step["author"] for step in steps if step["role"] == _WHOLE}
    tokenizers = {author: tokenizer_of_role(spec, author) for author in authors & {*get_args(Role)}}
    answering = Counter(step["author"] for step in steps if step["role"] == "answer").most_common(1)
    name, problems, rows = continuation.dataset_of(source, "budgets"), list[Problem](), list[dict[str, Json]]()
    for sample, budget in itertools.product(samples, budgets):
        one, problem_id = known[sample["problem_id"]], f"{name}/{sample['sample_id']}-{budget}"
        try:
            made = cut(sample, budget, tokenizers)
        except (LookupError, OverflowError, TypeError) as error:
            what = f"sample {sample['sample_id']} has a step with an unknown author or invalid token ids"
            raise RunDamaged(f"{source.path} is damaged: {what}") from error
        if made.text is not None:
            family = one.family or one.id
            problems.append(replace(one, id=problem_id, dataset=name, beginning=made.text, family=family))
        rows.append(
            {
                "cut_problem_id": None if made.text is None else problem_id,
                "source_run_id": source.path.name,
                "sample_id": sample["sample_id"],
                "problem_id": sample["problem_id"],
                "budget": budget,
                "num_tokens": made.num_tokens,
                "is_exact": made.is_exact,
            }
        )
    if not problems:
        raise ValueError(f"--budgets {budgets[0]}: all chains of {source.path.name} failed or ended within this budget")
    role = answering[0][0] if answering else "target" if spec.target else "draft"
    made_of = DatasetOrigin(name.replace("-", " of ", 1), hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16])
    changes = {"samples": 1, "token_budget": spec.token_budget + answer_tokens, "dataset_origin": made_of}
    params = {"answer_tokens": answer_tokens}
    continued = Continuation(source, "budget_cuts", role, problems, rows, params, changes, keeps_order=True)
    return continuation.prepare(continued, flags, list(_notices(source, budgets, rows, len(problems))))


def _notices(
    source: RunFolder, budgets: Sequence[int], rows: Sequence[Mapping[str, object]], num_cut: int
) -> Iterator[str]:
    chains = counted(len(rows) // len(budgets), "chain")
    how = "" if all(row["is_exact"] for row in rows) else " Chains are truncated at step boundaries, not re-planned."
    yield (
        f"BUDGETS of {source.path.name}: {chains} at {counted(len(budgets), 'budget')}; "
        f"answers are generated for {counted(num_cut, 'truncated chain')}; all others failed or fit the budget.{how}"
    )
    if unfinished := num_unfinished(source):
        yield (
            f"UNFINISHED: {counted(unfinished, 'sample')} of {source.path.name} excluded; "
            f"to finish:  {typed('jobs resume')}"
        )
