"""The registry of numbers: what each is called and means, how it is computed, with which interval, and who shows it.

A number of a run is either Σx/Σy over its problems, with x and y as SQL over a `Source`, or what a function makes of a
table of problems (no x; warehouse/estimates.py). Loading stores a row of the table `estimate` for each, and everything
that shows a number reads these rows. A new measure is an entry here.
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
"""Who shows a measure beside the tables of suites, which show what they are asked for: `summary`: as a line of its own;
`report`: the table of efficiency; `night`: nights judge it."""
Method = Callable[[Floats, Floats, Families | None], Interval]
"""Makes an interval of x and y, both (n,), one of each problem, and the problems' families; every y is positive."""


def mean(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of x/y, which is not negative."""
    found = mean_t(x / y, family)
    return replace(found, low=None if found.low is None else max(0.0, found.low))


def mean_share(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of x/y, where x is a part of y."""
    return intervals.mean(x / y, family)


def ratio(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return Σx/Σy where x is no part of y."""
    return rate(x, y, family, is_part=False)


def geometric(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the geometric mean over problems of x/y; the standard error is that of its logarithm."""
    found = mean_t(np.log(x / y), family)
    low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
    return replace(found, estimate=float(np.exp(found.estimate)), low=low, high=high)


def latency(x: Floats, y: Floats, family: Families | None = None) -> Interval:
    """Return the mean over problems of the times x/y."""
    return mean_time([x / y], family)


@dataclass(frozen=True)
class Source:
    """Rows that x and y are computed from, one for each run, problem and value of the keys."""

    sql: str
    """A table, or a SELECT in parentheses, with run_id, problem_id and the keys."""
    keys: tuple[str, ...] = ()
    """What tells several rows of a problem apart: grader_version, role, group_value."""
    group: str | None = None
    """What group_value is, as `estimate.group_kind` has it."""
    is_stored: bool = True
    """False: computed when it is asked for, because few runs have the data."""


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
"""The papers' reward model is Math-Shepherd (Wang et al. 2023); without its scores those of another are shown."""
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
"""Drafts with the target's score (verdict_score) and the reward model's (score)."""
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
"""Sums of the target's scores (x) and the reward model's (y) by problem, for their correlation."""
WALL = Source("(SELECT *, '' AS problem_id FROM run_throughput)", is_stored=False)
"""A row for the whole run, so that there is no interval."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that is shown."""

    name: str
    """Name in tables, SQL and JSON."""
    title: str = ""
    """Heading where it is shown."""
    meaning: str
    """What it is, as a clause."""
    unit: str = "0 to 1"
    x: str | None = None
    """SQL over a row of the source; None: a function computes it."""
    y: str = "1"
    """SQL; problems where it is not positive, or x is NULL, are left out."""
    method: Method = rate
    source: Source = PROBLEMS
    by_role: Source | None = None
    """The same by role of the model."""
    samples: str | None = None
    """SQL for the samples of a problem that it is over; None: it does not count samples."""
    better: Literal[-1, 0, 1] = 0
    """1: higher is better; 0: neither is."""
    shown: frozenset[Place] = frozenset()
    is_of_times: bool = False
    """Whether it depends on machine and load."""
    is_of_pair: bool = False
    """Whether it is of a run and a baseline."""
    warns: bool = False
    """Whether nights report a change for the better, too."""
    is_graded: bool = False
    """Whether it depends on grades, so that every grader version has its own."""

    @property
    def is_percent(self) -> bool:
        """Whether it is shown in percent."""
        return self.unit == "0 to 1" and self.method in (rate, mean_share)

    @property
    def definition(self) -> str:
        """Σx/Σy as text; empty where the number is another function of the problems."""
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
"""Samples of each slot of a worker below which there is no throughput: start and tail are most of its time."""
_ALL = (
    _graded("pass_at_1", "pass@1 with missing samples as not correct, a lower bound while there are any", "pass@1",
        "night"),
    Measure(
        name="fallback_rate", title="fallback rate", meaning="decisions that rejected all candidates", x="num_refused",
        y="num_decisions", better=-1, shown=_shown("report", "night"), warns=True,
    ),
    Measure(
        name="mean_fallback_rate", meaning="mean over problems of the fallback rate of each", x="num_refused",
        y="num_decisions", method=mean_share, better=-1,
    ),
    Measure(
        name="draft_share", title="draft's share of tokens", meaning="emitted tokens that the draft wrote",
        x="draft_tokens", y="emitted_tokens", better=1, shown=_shown("report", "night"), warns=True,
    ),
    _per_sample("emitted_tokens", "emitted tokens per sample", "tokens of the accepted chain, per finished sample",
        "emitted_tokens"),
    _per_sample("spent_tokens", "spent tokens per sample", "output tokens of all calls, per finished sample",
        "spent_tokens", "num_finished", "night"),
    _per_sample("critical_path_tokens", "critical-path tokens per sample",
        "tokens that a user waits for, per finished sample", "critical_path_tokens", "num_finished", "night"),
    Measure(
        name="truncated", title="samples cut off", meaning="graded samples that a limit ended", x="num_truncated",
        y="num_graded", source=GRADED, better=-1, shown=_shown("night"), is_graded=True,
    ),
    Measure(
        name="cache_hit_rate", title="cache hits", meaning="prompt tokens that were in the prefix cache",
        x="cached_tokens", y="prompt_tokens", better=1, shown=_shown("summary", "night"), is_of_times=True,
    ),
    Measure(
        name="seconds_per_token", title="time per token", unit="s", x="nullif(timed_seconds, 0)", y="timed_tokens",
        meaning="wall time by emitted tokens, geometric mean over problems", method=geometric, better=-1,
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
    _graded("graded_pass_at_1", "correct of the samples with a result, mean over problems", "pass@1"),
    _graded("pass_at_k", "unbiased pass@k over samples with a result"),
    _graded("maj_at_k", "majority of k samples with a result is right"),
    _graded("accuracy", "pass@1 of a level, missing samples as not correct"),
    _graded("graded_accuracy", "pass@1 of a level over samples with a result alone"),
    _graded("accuracy_at_budget", "correct of the samples at a token budget (view budget_point), mean over problems"),
    _graded("graded_accuracy_at_budget", "the same over samples with a result alone"),
    _graded("judge_auroc", "probability that a decision's number is higher before a correct final answer"),
    *(
        _graded(f"probe_{name}", meaning, better=0)
        for name, meaning in (
            ("false_acceptance", "cost of all proposals that accepted ones cause"),
            ("false_rejection", "steps without a loss that were refused"),
            ("loss_of_accepted", "mean loss of accepted steps"),
            ("loss_of_refused", "mean loss of refused steps"),
            ("auroc", "area under the ROC curve of the judge's number against what a step was worth"),
            ("oracle_escalated", "decisions in which the step that is worth more is the target's"),
            ("oracle_worth", "chance of a right answer behind a step, where always the one worth more is taken"),
            ("oracle_worth_of_drafts", "the same, where every draft is kept"),
            ("oracle_worth_of_judge", "the same, by the judge's decisions"),
            ("oracle_worth_of_target", "the same, where every step is the target's"),
            ("oracle_over_judge", "probe_oracle_worth minus probe_oracle_worth_of_judge, at the same decisions"),
        )
    ),
    Measure(
        name="acceptance_rate", meaning="decisions at a place of the chain that accepted a candidate", x="accepted",
        y="decisions", source=PLACES,
    ),
    Measure(
        name="latency_seconds", title="latency", unit="s", method=latency,
        x="CASE WHEN timed_tokens > 0 THEN nullif(timed_seconds, 0) / num_timed END",
        meaning="wall time of a sample, mean over problems", samples="num_timed", better=-1,
        is_of_times=True,
    ),
    *(
        Measure(name=name, title=title, unit=f"{of}/s", better=1, is_of_times=True,
            meaning=f"{of} of a worker per second while all its slots are full, each by the share of its time in it")
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
        samples="num_samples", meaning="negative log-probability of the accepted text under the target per token",
    ),
    Measure(
        name="distance_from_target", meaning="target_nats_per_token minus the baseline's", unit="nats", better=-1,
        is_of_pair=True,
    ),
    # Of the papers' tables.
    _of_pair("latency_saved", "part of the baseline's mean latency that the run saves", unit="0 to 1"),
    _of_pair("latency_saved_seconds", "mean latency of the baseline minus that of the run", unit="s"),
    _of_pair("wall_speed_up", "wall time of the baseline divided by that of the run, both over the same samples"),
    Measure(name="wall_seconds", unit="s", x="wall_seconds", y="num_workers", method=ratio, source=WALL, better=-1,
        meaning="wall time of the run by its workers", is_of_times=True),
    Measure(name="emitted_tokens_per_wall_second", unit="tokens/s", x="emitted_tokens / wall_seconds * num_workers",
        method=ratio, source=WALL, better=1, meaning="emitted tokens of all workers per second of wall time",
        is_of_times=True),
    _per_sample("longest_draft_tokens", "", "tokens of the longest completion of each draft call",
        "longest_draft_tokens", "num_drafted"),
    _per_sample("thinking_tokens", "", "emitted tokens without the answer", "emitted_tokens - answer_tokens"),
    _per_sample("target_thinking_tokens", "", "those that the target wrote", "target_tokens - target_answer_tokens"),
    _per_sample("answer_tokens", "", "tokens of the final answer", "answer_tokens", "num_answered"),
    *(
        Measure(name=name, unit="tokens/s", x=f"{x} / nullif({number}, 0)", method=ratio, meaning=meaning, better=1,
            is_of_times=True)
        for name, x, number, meaning in (
            ("tokens_per_second", "token_rates", "num_timed", "emitted tokens of a sample by its wall time"),
            ("thought_tokens_per_second", "thought_rates", "num_thoughts", "thinking tokens by the time of thinking"),
        )
    ),
    *(
        Measure(name=f"{name}_share", x=x, y="waited_seconds - timed_answer_seconds", is_of_times=True,
            meaning=f"time of the thought that {meaning} took")
        for name, x, meaning in (
            ("drafting", "drafting_seconds", "drafts"),
            ("selection", "verdict_seconds", "verdicts"),
            ("target", "waited_seconds - timed_answer_seconds - drafting_seconds - verdict_seconds", "all else"),
        )
    ),
    Measure(name="draft_steps", x="num_draft_steps", y="num_steps", meaning="steps that the draft wrote"),
    *(
        Measure(name=f"reflection_in_{role}s", unit="words in 1,000 tokens", x=f"1000 * {role}_words",
            y=f"{role}_tokens_written", method=ratio, meaning=f"wait, but and hmm in steps of role {role}")
        for role in ("draft", "fallback")
    ),
    Measure(name="mean_score", unit="0 to 9", x="score", y="num_scores", method=ratio, meaning="score of a verdict"),
    Measure(name="drafts_chosen_right", x="chosen", y="some_right", source=SELECTED,
        meaning="correct draft taken where there is one"),
    Measure(name="drafts_rejected_right", x="rejected", y="none_right", source=SELECTED,
        meaning="all drafts rejected where none is correct"),
    Measure(name="draft_quality", x="score", y="candidates", method=ratio, source=REWARDS, meaning="reward of drafts"),
    Measure(name="selected_quality", x="accepted_score", y="accepted_candidates", method=ratio, source=REWARDS,
        meaning="reward of accepted drafts"),
    *(
        Measure(name=f"score_at_reward_{tenth}", unit="0 to 9", x=f"CASE tenth WHEN {tenth} THEN verdict_score END",
            y="drafts", method=ratio, source=TENTHS, meaning=f"target's score of drafts of reward {tenth / 10} on")
        for tenth in range(10)
    ),
    Measure(name="score_reward_correlation", unit="-1 to 1", source=CORRELATED,
        meaning="correlation of the target's score of a draft and its reward"),
)  # fmt: skip
MEASURES = {measure.name: measure for measure in _ALL}
