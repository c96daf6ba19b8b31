"""What loading and summarising hand to their callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of a run folder that could not be read and was left out."""

    name: str
    """Path within the run folder."""
    reason: str
    """One line."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a run folder as it was found; a row of `loaded_file`."""

    name: str
    size_bytes: int
    sha256: str
    load_order: int
    num_rows: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading one run did, and what is in the warehouse for it now."""

    run_id: str
    unchanged: bool
    """True where every file was already loaded with this content, so nothing was written."""
    num_samples: int
    """Planned samples: problems × samples."""
    num_finished: int
    num_graded: int
    num_steps: int
    num_candidates: int
    num_calls: int
    num_duplicates: int
    """Records of a sample that an earlier record already held, left out by this load."""
    num_unplanned: int
    """Finished samples that are not in the plan, left out by this load."""
    skipped: tuple[SkippedFile, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """Tokens of one model per finished sample, and its share of the run."""

    emitted_per_sample: float
    spent_per_sample: float
    critical_path_per_sample: float
    emitted_share: float | None


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Speed against one run of the target alone; see the view `speed_up`."""

    baseline_run_id: str
    n: int
    speed_up: float
    low_95: float | None
    high_95: float | None
    rate_ratio: float
    chain_length_ratio: float
    same_versions: bool


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of one run. Shares and rates are fractions, times are seconds; None: nothing to compute it from."""

    run_id: str
    method: str
    params: Mapping[str, object]
    dataset: str
    draft: str | None
    target: str | None
    temperature: float
    concurrency: int
    take_turns: bool
    """Draft and target never worked at once."""
    n: int
    """Problems that are run."""
    k: int
    """Samples per problem."""
    dataset_size: int
    limited: bool
    pass_at_1: float
    """Samples not yet run count as not correct."""
    standard_error: float | None
    """Over problems."""
    low_95: float | None
    high_95: float | None
    interval: str
    """How it was made: see warehouse/statistics/intervals.py."""
    graded_pass_at_1: float | None
    """Over graded samples only."""
    num_not_run: int
    num_ungraded: int
    """Finished samples without a grade."""
    grader_version: str | None
    """The one whose grades these are; None: nobody graded."""
    num_grader_versions: int
    """How many graded the run; the others do not count."""
    verdicts: Mapping[str, int]
    """All nine; they sum to n × k."""
    fallback_rate: float | None
    num_verdicts: int
    tokens: Mapping[str, ModelTokens]
    """By model: draft, target."""
    num_timed: int
    """Samples finished in one attempt and without an error."""
    mean_latency_seconds: float | None
    median_latency_seconds: float | None
    latency_shares: Mapping[str, float]
    cache_hit_rate: float | None
    regime: str
    """latency (concurrency 1) or throughput."""
    tokens_per_call_second: Mapping[str, float]
    """By model; only in regime latency."""
    emitted_tokens_per_second: float | None
    """Of one worker, over wall time."""
    skipped: tuple[SkippedFile, ...] = ()
    speed_ups: tuple[SpeedUp, ...] = field(default=())
