"""Training data: examples in token ids from runs of the harness, losses, and checks against test questions.

Only training datasets are allowed. They must not contain a problem of a benchmark, except for the test questions that
SCoT's authors trained on, if these are accepted.

Alignment (section 3.3): the draft learns to write the target's chains. The loss is the mean cross-entropy of the
chain's tokens given the question (equation 2). The chain is the text that SCoT requests from the draft: a thought up to
and including `</think>` or, for a draft that does not think, the whole reply with its end of sequence.

Selection (section 3.4): the target learns which draft is right, if any. The prompt is SCoT's question
(`prompts.chain_choice_question`), and the prediction is a single token. Several tokens may be right: those of all right
drafts, or that of "all are wrong" if no draft is right.

`jobs.finished.training_data` converts run folders to these types, without torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from harness.engine import Tokenizer
from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, THINK_END, Prompts, chain_choice_question, opening
from harness.weights.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from torch import Tensor

GRADED = frozenset({"correct", "wrong", "no_answer", "unparsable", "truncated"})
"""The grader's verdicts that tell whether a draft is right; the others do not."""


@dataclass(frozen=True, slots=True)
class TargetChain:
    """A reply of the target alone to a training problem."""

    sample_id: str
    problem_id: str
    text: str
    """Thought and answer."""
    token_ids: tuple[int, ...]
    """Token ids in the target's vocabulary, without the end of sequence."""
    finish: str
    """`eos`, `stop`, or `length` for a truncated reply."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft chain as shown to the target, with the grader's verdict."""

    text: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Drafts:
    """The distinct drafts offered in one SCoT selection, in the order of its options."""

    sample_id: str
    problem_id: str
    offered: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """The input of one forward pass, and the labels of its last positions."""

    sample_id: str
    inputs: tuple[int, ...]
    """Token ids."""
    label_ids: tuple[int, ...]
    """align: the chain's ids, one per prediction. select: the ids of the right options, one of which suffices."""
    predictions: int
    """Number of trained positions at the end: the chain's length, or 1."""


@dataclass
class Examples:
    """Examples in sample order, and the number of excluded ones by reason."""

    kept: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, example: Example, max_tokens: int) -> None:
        """Add an example unless it is too long."""
        if len(example.inputs) > max_tokens:
            self.left_out[f"longer than {max_tokens} tokens"] += 1
        else:
            self.kept.append(example)


def as_lines(examples: Sequence[Example]) -> bytes:
    """Return the examples as JSON lines. Their hash identifies the training data: do not change the keys."""
    records = [
        {"sample_id": e.sample_id, "inputs": e.inputs, "wanted": e.label_ids, "predictions": e.predictions}
        for e in examples
    ]
    return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)


def alignment_examples(
    chains: Iterable[TargetChain],
    problems: Mapping[str, Problem],
    draft: HFTokenizer,
    target: HFTokenizer,
    max_tokens: int,
    wording: Prompts = BUILT_IN,
) -> Examples:
    """Return one example per complete chain, in the draft's vocabulary and with the wording of the run."""
    collected = Examples()
    for chain in chains:
        if chain.finish == "length" or (target.thinks and THINK_END not in chain.text):
            collected.left_out["cut off"] += 1
            continue
        prompt, _ = opening(draft, problems[chain.problem_id], wording)
        reply = _reply(chain, draft, target)
        collected.add(Example(chain.sample_id, (*prompt, *reply[:-1]), reply, len(reply)), max_tokens)
    return collected


def _reply(chain: TargetChain, draft: HFTokenizer, target: HFTokenizer) -> tuple[int, ...]:
    """Return the ids that the draft learns: the target's if tokenizers are equal and both models think or neither."""
    ids = _thought(chain.token_ids, target) if target.thinks else chain.token_ids
    text = chain.text.partition(THINK_END)[0] if target.thinks else chain.text
    if draft.thinks == target.thinks and draft.fingerprint == target.fingerprint:
        return ids if draft.thinks else (*ids, *_end(draft))
    if draft.thinks:
        return tuple(draft.encode(text + (THINK_END if target.thinks else draft.thought.closing.rstrip())))
    return (*draft.encode(text.rstrip()), *_end(draft))


def _thought(ids: Sequence[int], target: HFTokenizer) -> tuple[int, ...]:
    end = target.encode(THINK_END)
    for place in range(len(ids) - len(end) + 1):
        if list(ids[place : place + len(end)]) == end:
            return tuple(ids[: place + len(end)])
    raise ValueError("a chain's text contains </think>, but its ids do not")


def _end(draft: HFTokenizer) -> tuple[int, ...]:
    if draft.eos_token_id is None:
        raise ValueError("the draft's tokenizer has no end-of-sequence token, so the draft cannot learn to stop")
    return (draft.eos_token_id,)


def chain_loss(logits: Tensor, label_ids: Sequence[int]) -> Tensor:
    """Return the mean of −log p over the chain's tokens, in nats (equation 2).

    `logits`: float32, (predictions, vocabulary); `label_ids`: one id per prediction.
    """
    import torch

    return torch.nn.functional.cross_entropy(logits, torch.tensor(list(label_ids), device=logits.device))


def selection_examples(
    offers: Iterable[Drafts],
    problems: Mapping[str, Problem],
    target: Tokenizer,
    max_tokens: int,
    wording: Prompts = BUILT_IN,
) -> Examples:
    """Return one example per sample whose drafts all have a verdict in GRADED, with the wording of the run."""
    collected = Examples()
    for offer in offers:
        if not offer.offered:
            collected.left_out["every draft cut off"] += 1
            continue
        if any(draft.verdict not in GRADED for draft in offer.offered):
            collected.left_out["a draft without a verdict of the grader"] += 1
            continue
        texts = [draft.text for draft in offer.offered]
        question = chain_choice_question(target, problems[offer.problem_id], texts, wording, may_reject=True)
        label_ids = tuple(question.option_ids[i] for i in labels(offer))
        collected.add(Example(offer.sample_id, question.ids, label_ids, 1), max_tokens)
    return collected


def labels(offer: Drafts) -> tuple[int, ...]:
    """Return the indexes of the right options: all right drafts, otherwise the last option, "all are wrong"."""
    right = tuple(i for i, draft in enumerate(offer.offered) if draft.verdict == "correct")
    return right or (len(offer.offered),)


def best_label_loss(logits: Tensor, label_ids: Sequence[int]) -> Tensor:
    """Return the smallest −log p among the right options, in nats (equation 4); p is over the whole vocabulary.

    `logits`: float32, (1, vocabulary); `label_ids`: ids of the right options.
    """
    import torch

    return -torch.log_softmax(logits[-1], -1)[list(label_ids)].max()


Loss = Callable[["Tensor", Sequence[int]], "Tensor"]
"""Maps float32 logits, (predictions, vocabulary), and label ids to a scalar loss."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The benchmarks that were compared with the training problems."""

    compared: tuple[str, ...]
    missing_benchmarks: tuple[str, ...]
    """Benchmarks that could not be loaded from local files or from the hub."""
    accepted: Mapping[str, int] = field(default_factory=dict)
    """Number of accepted test questions among the problems, by benchmark."""


def check_dataset(dataset: str, *, accepts_test_questions: bool = False) -> None:
    """Raise ValueError for an unknown dataset, a benchmark, and test questions without `accepts_test_questions`."""
    benchmark = benchmarks.DATASETS.get(dataset)
    if benchmark is None or not benchmark.training:
        valid = ", ".join(b.name for b in benchmarks.DATASETS.values() if b.training)
        raise ValueError(f"{dataset} is not training data, and test questions must not be trained on; valid: {valid}")
    if dataset == benchmarks.SCOT_PROGRAM and not accepts_test_questions:
        held = "the test questions 500 to 999 of gsm8k, which the SCoT authors' code trains on"
        raise ValueError(f"{dataset} contains {held}: pass --accept-test-questions to use them")


def compare_with_benchmarks(
    problems: Sequence[Problem], data_dir: Path | None = None, *, accepts_test_questions: bool = False
) -> Comparison:
    """Compare problems with every available benchmark. Raises ValueError if a benchmark contains any of them.

    With `accepts_test_questions`, the test questions that the SCoT authors' code trains on are counted instead; all
    others are still rejected.
    """
    accepted: dict[str, int] = {}
    own = {_key(problem): problem.id for problem in problems}
    compared, missing_benchmarks = [], []
    spans = {name: (first, end) for name, first, end in benchmarks.DATASETS[benchmarks.SCOT_PROGRAM].spans}
    for benchmark in benchmarks.DATASETS.values():
        if benchmark.training or benchmark.part_of:
            continue
        try:
            theirs = benchmarks.load(benchmark.name, data_dir)
        except (benchmarks.DatasetNotFound, benchmarks.BadDataset):
            missing_benchmarks.append(benchmark.name)
            continue
        compared.append(benchmark.name)
        if accepts_test_questions and benchmark.name in spans:
            first, end = spans[benchmark.name]
            accepted[benchmark.name] = sum(_key(p) in own for p in theirs[first:end])
            theirs = [*theirs[:first], *theirs[end:]]
        if shared := [(own[_key(p)], p.id) for p in theirs if _key(p) in own]:
            raise ValueError(
                f"{len(shared)} training problems are test questions of {benchmark.name} ({shared[0][0]} is "
                f"{shared[0][1]}): exclude them with --skip and --problems"
            )
    return Comparison(tuple(compared), tuple(missing_benchmarks), {name: n for name, n in accepted.items() if n})


def _key(problem: Problem) -> str:
    return benchmarks.text_hash(problem.text.casefold())
