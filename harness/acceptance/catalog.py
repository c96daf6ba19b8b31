"""Every check of the acceptance: what it shows, its goal, where it applies and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["vllm", "transformers"]
Device = Literal["gpu", "cpu"]
Group = Literal["machine", "engines", "runs"]
"""Checks of a group share a process: its engines stay open from one check to the next."""

START_LIMIT_SECONDS = 420.0
"""How long engines may take to start, in addition to the limit of the check that needs them."""


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    group: Group
    shows: str
    goal: str
    limit_seconds: float
    """Time after which the check has failed, engine starts not included."""
    without_vllm: str | None = None
    """Why it does not apply to the transformers engine; None where it does."""
    on_cpu: str | None = None
    """Why it does not apply on a CPU; None where it does."""
    is_quick: bool = True
    """Whether `--quick` includes it."""

    def skip_reason(self, kind: Kind, device: Device, *, quick: bool) -> str | None:
        """Return why the check is not made, as the end of "skipped because"; None where it is made."""
        if kind != "vllm" and self.without_vllm is not None:
            return self.without_vllm
        if device == "cpu" and self.on_cpu is not None:
            return self.on_cpu
        return "of --quick" if quick and not self.is_quick else None


_NO_CACHE = "the transformers engine has no prefix cache"
_NO_SPECULATION = "the transformers engine has no token-level speculation"
_IN_PROCESS = "the transformers engine has no process of its own"
_CHECKS = (
    Check(
        "environment", "machine", "cards, driver, torch, CUDA, vLLM, compute mode",
        "torch sees every visible card; two engines may share a card", 120,
    ),
    Check(
        "start", "engines", "both engines start beside each other with nothing compiled yet",
        "both caches hold a sample; every engine process watches its worker", 60,
    ),
    Check("purposes", "engines", "every purpose of call and every kind of verdict", "every one answers", 120),
    Check(
        "verdicts", "engines", "log-probabilities of verdicts against plain transformers",
        "bfloat16: mean |Δ| < 0.05 over options of 1 % and more; float32: largest |Δ| < 0.001", 120,
    ),
    Check(
        "prefix-cache", "engines", "a growing chain finds its own tokens in the cache",
        "0.9 of what the engine has computed for the sample", 120, without_vllm=_NO_CACHE,
    ),
    Check(
        "mixed-load", "engines", "500 verdicts among 320 writers (fewer on a CPU and with --quick)",
        "none unavailable, and with the bundled pair every mass at least 0.9", 180,
    ),
    Check(
        "warm-start", "engines", "the engines start again with their compiled code in the cache",
        "not slower than the first start", 60, without_vllm="the transformers engine compiles nothing",
        on_cpu="nothing is compiled on a CPU", is_quick=False,
    ),
    Check(
        "real-sizes", "engines", "two models of real size, with random weights, on the cards as calculated for them",
        "each cache holds what was calculated, and the cards are not full", 120,
        without_vllm="the transformers engine has no KV cache of a fixed size", on_cpu="a CPU has no cards to share",
        is_quick=False,
    ),
    Check(
        "verdicts-float32", "engines", "the same in float32", "largest |Δ| < 0.001", 120,
    ),
    Check(
        "lossless-ngram", "engines", "speculation by n-grams, float32, temperature 0",
        "no completion differs from the one without", 120, without_vllm=_NO_SPECULATION,
    ),
    Check(
        "lossless-draft", "engines", "speculation by the draft model, float32, temperature 0",
        "no completion differs from the one without", 120, without_vllm=_NO_SPECULATION, is_quick=False,
    ),
    Check(
        "unbiased-draft", "engines", "speculation by the draft model, float32, temperature 0.6",
        "mean log-probability within 2 standard errors of the one without", 240, without_vllm=_NO_SPECULATION,
        on_cpu="vLLM draws wrong tokens under speculation on a CPU at temperatures above 0", is_quick=False,
    ),
    Check(
        "worker-killed", "runs", "kill -9 of a worker in the middle of a run",
        "its processes and their memory are gone in less than 10 s", 180,
    ),
    Check(
        "engine-killed", "runs", "kill -9 of the target's engine in the middle of a run",
        "one revival, and the run goes on", 240, without_vllm=_IN_PROCESS,
    ),
    Check(
        "preempted", "runs", "SIGUSR2 to a worker, as Slurm sends before the time limit; then the same command again",
        "it ends by itself; the run is finished, and nothing that was accepted is lost", 300,
    ),
)  # fmt: skip
CHECKS = {check.name: check for check in _CHECKS}
"""By name, in the order in which they are made."""


def chosen(only: Sequence[str] | None, skip: Sequence[str]) -> list[Check]:
    """Return the checks to make, in their order. Raises ValueError for a name that is none."""
    for name in (*(only or ()), *skip):
        if name not in CHECKS:
            raise ValueError(f"{name!r} is not one of {', '.join(CHECKS)}")
    return [check for name, check in CHECKS.items() if (only is None or name in only) and name not in skip]
