"""Checks of token-level speculation: the device, this vLLM's settings, further packages, and the proposing weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from harness import environment
from harness.checks import model_files
from harness.checks.check import Check, Question, failure, ok, warning
from harness.checks.probe import probe
from harness.engines import registry, speculation
from harness.engines.speculation import (
    SAMPLING_FIELD,
    DraftSampling,
    Proposer,
    Speculation,
    draft_sampling,
    greedy_drafts_notice,
    unsupported_reason,
)
from harness.weights import models

_SUBJECT = "speculation"
_CONFIG = """
import dataclasses, json, typing
from vllm.config import SpeculativeConfig
from vllm.config.speculative import SpeculativeMethod
def names(kind):
    for item in typing.get_args(kind):
        if isinstance(item, str):
            yield item
        else:
            yield from names(item)
fields = {f.name for f in dataclasses.fields(SpeculativeConfig)}
print(json.dumps({"methods": sorted(names(SpeculativeMethod)), "fields": sorted(fields)}))
"""


def check_speculation(question: Question) -> Iterator[Check]:
    """Check what `--spec-decode` needs; nothing without it."""
    if question.spec_decode is None:
        return
    is_here = question.packages_are_here
    kind = registry.resolved(question.engine, is_here=is_here)
    device = environment.accelerator() if question.workers_run_here else "gpu"
    if reason := unsupported_reason(kind, device, question.temperature, question.spec_decode, is_here=is_here):
        yield failure(_SUBJECT, reason)
        return
    if is_here:
        yield from _version(question)
    yield from _weights(question)
    sampling = draft_sampling(question.spec_decode, question.spec_sampling)
    if notice := greedy_drafts_notice(sampling, question.temperature):
        yield warning(_SUBJECT, notice)


def _version(question: Question) -> Iterator[Check]:
    """Check that this vLLM knows the method and the settings; names of both change between versions."""
    proposing = cast(Proposer, question.spec_decode)
    config = Speculation(proposing, 1, sampling=cast(DraftSampling, question.spec_sampling or "greedy")).config()
    result = probe(_CONFIG, seconds=question.probe_seconds)
    if result.timed_out:
        yield warning(_SUBJECT, f"vLLM was not imported within {question.probe_seconds:.0f} s; check again")
        return
    if result.problem is not None:
        yield failure(_SUBJECT, f"vLLM's SpeculativeConfig cannot be imported: {result.problem}")
        return
    missing = sorted(config.keys() - set(result.answer["fields"]))
    if config["method"] not in result.answer["methods"]:
        yield failure(_SUBJECT, f"this vLLM has no method {config['method']}: install version 0.32")
    elif missing:
        remedy = "leave out --spec-sampling" if missing == [SAMPLING_FIELD] else "install version 0.32"
        yield failure(_SUBJECT, f"this vLLM's SpeculativeConfig has no {', '.join(missing)}: {remedy}")
    else:
        yield ok(_SUBJECT, f"vLLM has the method {config['method']} with {', '.join(sorted(config))}")


def _weights(question: Question) -> Iterator[Check]:
    """Check the files of the proposing weights, and that they are for the target, as far as files are at hand."""
    assert question.spec_decode is not None
    target = models.resolve(question.models["target"]) if "target" in question.models else None
    named = question.speculator or (question.models.get("draft") if question.spec_decode == "draft" else None)
    weights = speculation.resolve(named) if named else None
    if question.speculator is not None and weights is not None:
        yield from model_files.check_speculator(weights)
    if target is None:
        return
    try:
        samples_drafts = question.spec_sampling == "probabilistic"
        speculation.check_pair(question.spec_decode, target, weights, samples_drafts=samples_drafts)
    except ValueError as problem:
        yield failure(_SUBJECT, str(problem))
        return
    if question.spec_decode == "eagle3" and weights and (notice := speculation.other_target_notice(target, weights)):
        yield warning(_SUBJECT, notice)
