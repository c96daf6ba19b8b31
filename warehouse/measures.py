"""The registry of metrics: names, meanings, computation, interval method, and where they are shown.

A run's metric is computed either from x and y of each problem, given as SQL over a `Source` (usually Σx/Σy), or by a
function in warehouse/estimates.py (x is None). Loading stores each metric as a row of the table `estimate`, and all
output reads these rows. To add a measure, add an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from warehouse.statistics import intervals
from warehouse.statistics.intervals import Families, Floats, Interval, mean_t
from warehouse.statistics.ratios import mean_time
from warehouse.statistics.shares import rate

Place = Literal["summary", "report", "night"]
"""Where a measure is shown, apart from tables of suites. `summary`: a separate line; `report`: the efficiency table;
`night`: judged by the nightly verdict.
"""
Method = Callable[[Floats, Floats, Families | None], Interval]
"""Function that returns the interval for x and y, both (n,), one value per problem, and the problems' families; y is
positive.
"""


def mean(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of x/y; x/y is not negative."""
    found = mean_t(x / y, family)
    return replace(found, low=None if found.low is None else max(0.0, found.low))


def mean_share(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of x/y; x is part of y."""
    return intervals.mean(x / y, family)


def ratio(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return Σx/Σy; x is not part of y."""
    return rate(x, y, family, is_part=False)


def geometric(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the geometric mean over problems of x/y; the standard error is that of its logarithm."""
    found = mean_t(np.log(x / y), family)
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return replace(found, estimate=float(np.exp(found.estimate)), low=low, high=high)


def latency(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of x/y, which is a time."""
    return mean_time([x / y], family)


@dataclass(frozen=True)
class Source:
    """Rows for computing x and y: one per run, problem and value of the keys."""

    sql: str
    """A table, or a SELECT in parentheses, with run_id, problem_id and the keys."""
    keys: tuple[str, ...] = ()
    """Columns that distinguish rows of a problem: grader_version, role, group_value."""
    group: str | None = None
    """Meaning of group_value, as in `estimate.group_kind`."""
    is_stored: bool = True
    """Whether loading stores the metrics. False: they are computed on demand, because only a few runs have the data."""


PROBLEMS = Source("problem_total")
ROLES = Source(
    """(
    SELECT run_id, problem_id, model AS role, num_finished, coalesce(emitted, 0) AS emitted_tokens,
        coalesce(spent, 0) AS spent_tokens, coalesce(critical_path, 0) AS critical_path_tokens
    FROM problem_total JOIN (SELECT DISTINCT run_id, model FROM sample_tokens) USING (run_id) LEFT JOIN (
        SELECT run_id, problem_id, model, sum(emitted_tokens) AS emitted, sum(spent_tokens) AS spent,
            sum(critical_path_tokens) AS critical_path
        FROM sample_tokens JOIN sample USING (run_id, sample_id) GROUP BY ALL
    ) USING (run_id, problem_id, model)
)""",
    ("role",),
)
PLACES = Source(
    """(
    SELECT run_id, problem_id, step_index::VARCHAR AS group_value, count(*) FILTER (decision_accepted) AS accepted,
        count(*) AS decisions
    FROM step JOIN sample USING (run_id, sample_id) WHERE decision_kind IS NOT NULL GROUP BY ALL
)""",
    ("group_value",),
    "step",
)
GRADED = Source(
    """(
    SELECT run_id, problem_id, grader_version, count(*) FILTER (verdict = 'truncated') AS num_truncated,
        count(*) AS num_graded
    FROM graded_sample WHERE graded GROUP BY ALL
)""",
    ("grader_version",),
)
SCORED = Source(
    """(
    SELECT run_id, problem_id, exact_sum(-logprob / num_tokens) AS nats, count(*) AS num_samples
    FROM sample_target_logprob GROUP BY ALL
)"""
)
SELECTED = Source(
    """(
    SELECT run_id, problem_id, count(*) FILTER (class = 1) AS some_right, count(*) FILTER (class = 2) AS none_right,
        count(*) FILTER (class = 1 AND is_right) AS chosen, count(*) FILTER (class = 2 AND is_right) AS rejected
    FROM sample_selection JOIN sample USING (run_id, sample_id) GROUP BY ALL
)""",
    is_stored=False,
)
SHOWN_SCORES = """(
    FROM candidate_score SEMI JOIN (
        SELECT run_id, scorer FROM candidate_score GROUP BY run_id, scorer
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY scorer ILIKE '%shepherd%' DESC, scorer) = 1
    ) AS shown USING (run_id, scorer)
)"""
"""The papers' reward model is Math-Shepherd (Wang et al. 2023); without its scores, another model's are shown."""
REWARDS = Source(
    f"""(
    SELECT run_id, problem_id, sum(score) AS score, count(*) AS candidates,
        sum(score) FILTER (accepted) AS accepted_score, count(*) FILTER (accepted) AS accepted_candidates
    FROM {SHOWN_SCORES} JOIN candidate USING (run_id, sample_id, step_index, candidate_index)
    JOIN sample USING (run_id, sample_id) WHERE score IS NOT NULL GROUP BY run_id, problem_id
)""",
    is_stored=False,
)
_SCORED_WITH_REWARD = f"""
    FROM {SHOWN_SCORES} JOIN step USING (run_id, sample_id, step_index) JOIN sample USING (run_id, sample_id)
    WHERE verdict_kind = 'score' AND isfinite(verdict_score) AND score IS NOT NULL GROUP BY ALL
"""
"""Drafts with the target's score (verdict_score) and the reward model's score (score)."""
TENTHS = Source(
    f"""(
    SELECT run_id, problem_id, least(floor(10 * score), 9) AS tenth, sum(verdict_score) AS verdict_score,
        count(*) AS drafts
    {_SCORED_WITH_REWARD}
)""",
    is_stored=False,
)
CORRELATED = Source(
    f"""(
    SELECT run_id, problem_id, count(*)::DOUBLE AS n, sum(verdict_score) AS x, sum(score) AS y,
        sum(verdict_score * score) AS xy, sum(verdict_score ** 2) AS xx, sum(score ** 2) AS yy
    {_SCORED_WITH_REWARD}
)""",
    is_stored=False,
)
"""Sums of the target's scores (x) and the reward model's scores (y) per problem, for their correlation."""
WALL = Source("(SELECT *, '' AS problem_id FROM run_throughput)", is_stored=False)
"""One row for the whole run, so there is no interval."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric that is shown."""

    name: str
    """Name in tables, SQL and JSON."""
    title: str = ""
    """Heading in output."""
    meaning: str
    """Definition of the metric, as a clause."""
    unit: str = "0 to 1"
    x: str | None = None
    """x, as SQL over a row of the source. None: the metric is computed by a function."""
    y: str = "1"
    """y, as SQL over a row of the source. Problems are left out if y is not positive or x is NULL."""
    method: Method = rate
    source: Source = PROBLEMS
    by_role: Source | None = None
    """Source of the metric by model role."""
    samples: str | None = None
    """SQL for the number of samples of a problem. None: the estimate has no number of samples."""
    better: Literal[-1, 0, 1] = 0
    """1: higher is better; −1: lower is better; 0: neither."""
    shown: frozenset[Place] = frozenset()
    is_of_times: bool = False
    """Whether the value depends on machine and load."""
    is_of_pair: bool = False
    """Whether the measure compares a run with a baseline."""
    warns: bool = False
    """Whether nightly verdicts also report improvements."""
    is_graded: bool = False
    """Whether the value depends on grades, so every grader version has a separate value."""

    @property
    def is_percent(self) -> bool:
        return self.unit == "0 to 1" and self.method in (rate, mean_share)

    @property
    def definition(self) -> str:
        """x and y as the string `x / y`; empty without x, and for geometric means and means of shares."""
        return "" if self.x is None or self.method in (geometric, mean_share) else f"{self.x} / {self.y}"


def _shown(*places: Place) -> frozenset[Place]:
    return frozenset(places)


def _graded(name: str, meaning: str, title: str = "", *places: Place, better: Literal[-1, 0, 1] = 1) -> Measure:
    return Measure(
        name=name, title=title, meaning=meaning, better=better, shown=_shown(*places), is_graded=True, warns=better > 0,
    )  # fmt: skip


def _per_sample(name: str, title: str, meaning: str, x: str, y: str = "num_finished", *places: Place) -> Measure:
    better: Literal[-1, 0] = -1 if places else 0
    return Measure(
        name=name, title=title, meaning=meaning, unit="tokens", x=x, y=y, method=ratio, better=better,
        shown=_shown(*places), by_role=ROLES if x == name and y == "num_finished" else None,
    )  # fmt: skip


def _of_pair(name: str, meaning: str, title: str = "", *places: Place, unit: str = "ratio") -> Measure:
    return Measure(
        name=name, title=title, meaning=meaning, unit=unit, better=1, shown=_shown(*places), is_of_times=True,
        is_of_pair=True,
    )  # fmt: skip


SAMPLES_PER_SLOT = 5
"""Minimum number of samples per slot of a worker for a throughput; with fewer, start and end take most of the time."""
_ALL = (
    _graded("pass_at_1", "pass@1 with missing samples counted as incorrect; a lower bound if any are missing", "pass@1",
        "night"),
    Measure(
        name="fallback_rate", title="fallback rate", meaning="share of decisions that rejected all candidates",
        x="num_refused",
        y="num_decisions", better=-1, shown=_shown("report", "night"), warns=True,
    ),
    Measure(
        name="mean_fallback_rate", meaning="fallback rate per problem, averaged over problems", x="num_refused",
        y="num_decisions", method=mean_share, better=-1,
    ),
    Measure(
        name="draft_share", title="draft's share of tokens", meaning="share of emitted tokens written by the draft",
        x="draft_tokens", y="emitted_tokens", better=1, shown=_shown("report", "night"), warns=True,
    ),
    _per_sample("emitted_tokens", "emitted tokens per sample", "tokens of the accepted chain, per finished sample",
        "emitted_tokens"),
    _per_sample("spent_tokens", "spent tokens per sample", "output tokens of all calls, per finished sample",
        "spent_tokens", "num_finished", "night"),
    _per_sample("critical_path_tokens", "critical-path tokens per sample",
        "tokens on the critical path, per finished sample", "critical_path_tokens", "num_finished", "night"),
    Measure(
        name="truncated", title="samples cut off", meaning="share of graded samples truncated by a limit",
        x="num_truncated",
        y="num_graded", source=GRADED, better=-1, shown=_shown("night"), is_graded=True,
    ),
    Measure(
        name="cache_hit_rate", title="cache hits", meaning="share of prompt tokens found in the prefix cache",
        x="cached_tokens", y="prompt_tokens", better=1, shown=_shown("summary", "night"), is_of_times=True,
    ),
    Measure(
        name="seconds_per_token", title="time per token", unit="s", x="nullif(timed_seconds, 0)", y="timed_tokens",
        meaning="wall time per emitted token, geometric mean over problems", method=geometric, better=-1,
        shown=_shown("night"), is_of_times=True,
    ),
    _of_pair("speed_up", "latency of the target alone divided by the run's, geometric mean over problems", "speed-up",
        "night"),
    _of_pair("ratio_of_means", "mean latency of the target alone divided by the run's"),
    _of_pair("rate_ratio", "emitted tokens per second divided by the baseline's, geometric mean over problems"),
    Measure(
        name="chain_length_ratio", unit="ratio", is_of_pair=True,
        meaning="emitted tokens per chain divided by the baseline's, geometric mean over problems",
    ),
    _of_pair("speed_up_at_one", "ratio of mean latencies with one sample in flight, from timing samples"),
    _graded("graded_pass_at_1", "share of samples with a result that are correct, mean over problems", "pass@1"),
    _graded("pass_at_k", "unbiased pass@k over samples with a result"),
    _graded("maj_at_k", "share of problems where the majority vote over k samples with a result is correct"),
    _graded("accuracy", "pass@1 for one level, with missing samples counted as incorrect"),
    _graded("graded_accuracy", "pass@1 for one level, over samples with a result only"),
    _graded("accuracy_at_budget", "share of samples correct at a token budget (view budget_point), mean over problems"),
    _graded("graded_accuracy_at_budget", "accuracy_at_budget over samples with a result only"),
    _graded("judge_auroc",
        "probability that a decision's score is higher before a correct final answer than before an incorrect one"),
    *(
        _graded(f"probe_{name}", meaning, better=0)
        for name, meaning in (
            ("false_acceptance", "share of the loss of all proposals that is due to accepted ones"),
            ("false_rejection", "share of the right steps that were rejected"),
            ("loss_of_accepted", "mean loss of accepted steps"),
            ("loss_of_refused", "mean loss of rejected steps"),
            ("auroc", "AUROC of the judge's score for predicting step value"),
            ("oracle_escalated", "share of decisions in which the target's step is better"),
            ("oracle_worth", "probability of a correct answer after a step if the better step is always taken"),
            ("oracle_worth_of_drafts", "probability of a correct answer after a step if every draft is kept"),
            ("oracle_worth_of_judge", "probability of a correct answer after a step with the judge's decisions"),
            ("oracle_worth_of_target", "probability of a correct answer after a step if every step is the target's"),
            ("oracle_over_judge", "probe_oracle_worth minus probe_oracle_worth_of_judge, over the same decisions"),
        )
    ),
    Measure(
        name="acceptance_rate", meaning="share of decisions at a position in the chain that accepted a candidate",
        x="accepted", y="decisions", source=PLACES,
    ),
    Measure(
        name="latency_seconds", title="latency", unit="s", method=latency,
        x="CASE WHEN timed_tokens > 0 THEN nullif(timed_seconds, 0) / num_timed END",
        meaning="wall time of a sample, mean over problems", samples="num_timed", better=-1,
        is_of_times=True,
    ),
    *(
        Measure(name=name, title=title, unit=f"{of}/s", better=1, is_of_times=True,
            meaning=f"{of} per second and worker while all slots are in use; a sample counts by the share of its time "
            "in that period")
        for name, title, of in (
            ("samples_per_second", "throughput", "samples"),
            ("emitted_tokens_per_second", "emitted tokens/s", "tokens"),
        )
    ),
    Measure(
        name="latency_at_one", title="latency alone", unit="s", better=-1, is_of_times=True,
        meaning="mean wall time of a sample with one sample in flight, estimated from timing samples",
    ),
    Measure(
        name="target_nats_per_token", unit="nats", x="nats / num_samples", method=mean, source=SCORED,
        samples="num_samples", meaning="negative log-probability per token of the accepted text under the target",
    ),
    Measure(
        name="distance_from_target", meaning="target_nats_per_token minus the baseline's", unit="nats", better=-1,
        is_of_pair=True,
    ),
    # Only in the papers' tables.
    _of_pair("latency_saved", "fraction of the baseline's mean latency saved", unit="0 to 1"),
    _of_pair("latency_saved_seconds", "baseline's mean latency minus the run's", unit="s"),
    _of_pair("wall_speed_up", "baseline's wall time divided by the run's, over the same samples"),
    Measure(name="wall_seconds", unit="s", x="wall_seconds", y="num_workers", method=ratio, source=WALL, better=-1,
        meaning="wall time of the run divided by its number of workers", is_of_times=True),
    Measure(name="emitted_tokens_per_wall_second", unit="tokens/s", x="emitted_tokens / wall_seconds * num_workers",
        method=ratio, source=WALL, better=1, meaning="emitted tokens of all workers per second of wall time",
        is_of_times=True),
    _per_sample("longest_draft_tokens", "", "tokens of the longest completion of each draft call",
        "longest_draft_tokens", "num_drafted"),
    _per_sample("thinking_tokens", "", "emitted tokens excluding the answer", "emitted_tokens - answer_tokens"),
    _per_sample("target_thinking_tokens", "", "the target's emitted tokens excluding the answer",
        "target_tokens - target_answer_tokens"),
    _per_sample("answer_tokens", "", "tokens of the final answer", "answer_tokens", "num_answered"),
    *(
        Measure(name=name, unit="tokens/s", x=f"{x} / nullif({number}, 0)", method=ratio, meaning=meaning, better=1,
            is_of_times=True)
        for name, x, number, meaning in (
            ("tokens_per_second", "token_rates", "num_timed", "emitted tokens per second of a sample's wall time"),
            ("thought_tokens_per_second", "thought_rates", "num_thoughts", "reasoning tokens per reasoning second"),
        )
    ),
    *(
        Measure(name=f"{name}_share", x=x, y="waited_seconds - timed_answer_seconds", is_of_times=True,
            meaning=f"share of the reasoning time spent on {meaning}")
        for name, x, meaning in (
            ("drafting", "drafting_seconds", "drafts"),
            ("selection", "verdict_seconds", "verdicts"),
            ("target", "waited_seconds - timed_answer_seconds - drafting_seconds - verdict_seconds", "everything else"),
        )
    ),
    Measure(name="draft_steps", x="num_draft_steps", y="num_steps", meaning="share of steps written by the draft"),
    *(
        Measure(name=f"reflection_in_{role}s", unit="words in 1,000 tokens", x=f"1000 * {role}_words",
            y=f"{role}_tokens_written", method=ratio, meaning=f'words "wait", "but" and "hmm" in steps of role {role}')
        for role in ("draft", "fallback")
    ),
    Measure(name="mean_score", unit="0 to 9", x="score", y="num_scores", method=ratio, meaning="score of a verdict"),
    Measure(name="drafts_chosen_right", x="chosen", y="some_right", source=SELECTED,
        meaning="share of cases with a correct draft in which a correct one was selected"),
    Measure(name="drafts_rejected_right", x="rejected", y="none_right", source=SELECTED,
        meaning="share of cases without a correct draft in which all were rejected"),
    Measure(name="draft_quality", x="score", y="candidates", method=ratio, source=REWARDS, meaning="reward of drafts"),
    Measure(name="selected_quality", x="accepted_score", y="accepted_candidates", method=ratio, source=REWARDS,
        meaning="reward of accepted drafts"),
    *(
        Measure(name=f"score_at_reward_{tenth}", unit="0 to 9", x=f"CASE tenth WHEN {tenth} THEN verdict_score END",
            y="drafts", method=ratio, source=TENTHS, meaning=f"target's score of drafts with rewards from {tenth / 10}")
        for tenth in range(10)
    ),
    Measure(name="score_reward_correlation", unit="-1 to 1", source=CORRELATED,
        meaning="correlation between the target's score and the reward of a draft"),
)  # fmt: skip
MEASURES = {measure.name: measure for measure in _ALL}
