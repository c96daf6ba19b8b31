"""The report's tables as text cells, shared by HTML, Markdown and LaTeX, and what its sections are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from warehouse.comparison.manifests import own_wording
from warehouse.database import Record
from warehouse.formatting import NOTHING, fixed, number, span
from warehouse.probed import EXPLAINED, RATES, areas, cells_of, left_out
from warehouse.render import warnings
from warehouse.report.facts import Estimate, Flips, RunFacts, other_problems
from warehouse.report.queries import FLIPS, copyable
from warehouse.report.svg import Chart
from warehouse.summary import SpeedUpAtOne

INTERVAL = (
    "Intervals are 95 % confidence intervals over problems (bounded mean: half an unsolved problem is added for the "
    "lower end, half a solved one for the upper end)."
)


@dataclass(frozen=True)
class Table:
    """A table of plain text, which is escaped when it is written. The first column names the row."""

    name: str
    """CSS class in the page, and label in LaTeX."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    places: Sequence[int] = ()
    """Index in the report of the run that each row is about, whose mark is drawn beside it; empty: none."""
    is_sortable: bool = True
    """Whether the page lets its rows be sorted."""
    sql: str = ""
    """The statement behind the table, for `warehouse.query`; empty: that of the figure above it, or none."""
    differs: frozenset[int] = frozenset()
    """Indices of the rows that are marked because the runs differ unexpectedly."""


def results(runs: Sequence[RunFacts]) -> Table:
    """Return the table of accuracies."""
    columns = (
        "run",
        "dataset",
        "n × k",
        "pass@1 %",
        "95 % interval",
        "re-run SE",
        "once complete %",
        "not run",
        "not graded",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                limited_label(run),
                s.dataset,
                f"{s.n} × {s.k}" + (f" ({s.num_result_samples} of {s.num_planned})" if s.is_unfinished else ""),
                fixed(s.result.estimate if s.result else None, 2, 100),
                span(s.result.low, s.result.high, 1, 100) if s.result else NOTHING,
                fixed(run.rerun_standard_error, 2, 100),
                span(s.pass_at_1, s.highest_pass_at_1, 2, 100) if s.result and s.is_unfinished else NOTHING,
                str(s.num_not_run),
                str(s.num_ungraded),
            )
        )
    caption = (
        "pass@1: mean over n problems of the share of their k samples that are correct, as in summaries and "
        "comparisons. Samples that were not run or not graded are left out; how many are there is in brackets, and "
        '"once complete" is what pass@1 becomes if all missing samples are wrong, or all are right. '
        f"{INTERVAL} Re-run SE: standard error over "
        f"re-runs of the same problems, in percentage points. Grader: {_graders(runs)}."
    )
    return Table("results", "Results", columns, rows, caption, range(len(runs)))


def efficiency(runs: Sequence[RunFacts]) -> Table:
    """Return the table of fallback rates and tokens."""
    columns = (
        "run",
        "fallback %",
        "95 % interval",
        "decisions",
        "emitted by the draft %",
        "emitted",
        "spent",
        "critical path",
    )
    rows = []
    for run in runs:
        tokens = run.summary.tokens
        fallback = run.fallback
        draft = tokens["draft"].emitted_share if "draft" in tokens else None
        rows.append(
            (
                limited_label(run),
                fixed(fallback.value if fallback else None, 1, 100),
                _share_interval(fallback),
                str(run.summary.num_decisions) if run.summary.num_decisions else NOTHING,
                fixed(draft, 1, 100),
                _sum(t.emitted_per_sample for t in tokens.values()),
                _sum(t.spent_per_sample for t in tokens.values()),
                _sum(t.critical_path_per_sample for t in tokens.values()),
            )
        )
    caption = (
        "Fallback: share of the decisions (verdicts, or the method's own) that rejected every candidate, with a 95 % "
        "interval over problems. Tokens are per finished sample. Emitted: tokens of the accepted chain. Spent: all "
        "output tokens of all calls, including rejected candidates and verdicts. Critical path: tokens that a user "
        "waits for, which counts only the longest of parallel candidates."
    )
    return Table("efficiency", "Fallback and tokens", columns, rows, caption, range(len(runs)))


def latency(runs: Sequence[RunFacts]) -> Table:
    """Return the table of latencies."""
    columns = (
        "run",
        "in flight",
        "devices",
        "samples timed",
        "mean s",
        "95 % interval",
        "median s",
        "95th percentile s",
        "tokens/s",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                limited_label(run),
                str(s.concurrency),
                run.conditions["devices"] or NOTHING,
                str(s.num_timed),
                number(run.latency.value if run.latency else None),
                _latency_interval(run.latency),
                number(s.median_latency_seconds),
                number(run.p95_seconds),
                number(s.emitted_tokens_per_second),
            )
        )
    caption = (
        "Wall time per sample, over samples that finished in one attempt without an error. Mean: mean over problems "
        "of the mean over their samples, with a 95 % interval. Median and percentile: over samples. Several samples "
        "in flight share the engines, so a sample's time includes waiting for the others: only compare runs with the "
        "same number in flight on the same devices. tokens/s: emitted tokens of a worker divided by its wall time."
    )
    return Table("latency", "Latency", columns, rows, caption, range(len(runs)))


def speed_ups(runs: Sequence[RunFacts]) -> Table | None:
    """Return the table of speed-ups over the target alone; None without a comparable run of it in the report."""
    names = {run.summary.run_id: run.label for run in runs}
    timed = [
        (place, run, ratio)
        for place, run in enumerate(runs)
        for ratio in run.summary.speed_ups
        if ratio.baseline_run_id in names
    ]
    rows = [
        (
            limited_label(run),
            names[ratio.baseline_run_id],
            str(ratio.n),
            fixed(ratio.speed_up, 2),
            span(ratio.low_95, ratio.high_95, 2) + ("" if ratio.run_factor else " within these runs"),
            fixed(ratio.rate_ratio, 2),
            fixed(ratio.chain_length_ratio, 2),
            "yes" if ratio.same_versions else "NO",
        )
        for _, run, ratio in timed
    ]
    if not rows:
        return None
    columns = (
        "run",
        "baseline",
        "problems",
        "speed-up ×",
        "95 % interval",
        "rate ratio",
        "chain length ratio",
        "same packages",
    )
    caption = (
        "Latency of the target alone divided by the latency of the run: geometric mean over the problems that both "
        "finished, with a 95 % interval (bounded mean of logarithms). It covers how much times differ from one run to "
        "the next if enough runs were repeated under the same conditions, and otherwise holds within these runs only: "
        "identical work has come out 17 % apart, and twice as long on a busy machine. Above 1 the run is faster. "
        "Speed-up = rate ratio / chain length ratio. Only runs with the same target, sampling, engine, devices and "
        "number in flight are compared."
    )
    places = [place for place, _, _ in timed]
    return Table("speed-up", "Speed-up over the target alone", columns, rows, caption, places)


def costs(runs: Sequence[RunFacts]) -> Table:
    """Return the table of device time."""
    rows = []
    for run in runs:
        correct = run.summary.verdicts.get("correct", 0)
        finished = run.summary.num_planned - run.summary.num_not_run
        for cost in run.costs:
            per_correct = 3600 * cost.device_hours / correct if correct else None
            rows.append(
                (
                    limited_label(run),
                    cost.device,
                    str(cost.num_attempts),
                    number(cost.device_hours) if cost.device != "cpu" else NOTHING,
                    number(cost.device_hours) if cost.device == "cpu" else NOTHING,
                    number(3600 * cost.device_hours / finished if finished else None),
                    number(per_correct),
                )
            )
    columns = (
        "run",
        "device",
        "worker attempts",
        "GPU-hours",
        "CPU worker-hours",
        "device-seconds per sample",
        "device-seconds per correct answer",
    )
    caption = (
        "Number of devices of each worker × (start-up time of its engines + time from its start to the end of its "
        "last call). A start that runs share counts in full for the first of them. Not included: attempts that "
        "finished no sample, because they leave no record, and time in the scheduler's queue."
    )
    places = [place for place, run in enumerate(runs) for _ in run.costs]
    return Table("cost", "Cost", columns, rows, caption, places)


def flip_counts(runs: Sequence[RunFacts], flips: Sequence[Flips]) -> Table:
    """Return the table of flips, with a row for each pair of runs."""
    rows = [
        (
            f"{runs[f.first].label} / {runs[f.second].label}",
            str(f.num_shared),
            str(f.only_first),
            str(f.only_second),
        )
        for f in flips
    ]
    caption = (
        "A problem is right under a run if more than half of its graded samples are correct, and wrong if fewer than "
        "half are; exactly half is neither. These are counts, not a test: the differences from the baseline are tested."
    )
    columns = ("first / second", "problems in both", "right under the first only", "right under the second only")
    statement = copyable(FLIPS, [run.summary.run_id for run in runs])
    return Table("flips", "Flips", columns, rows, caption, sql=statement)


def report_warnings(runs: Sequence[RunFacts]) -> list[str]:
    """Return the warnings on all runs, each once, with the labels of the runs that it applies to."""
    labels_by_warning: dict[str, list[str]] = {}
    for run in runs:
        for line in warnings(run.summary):
            labels_by_warning.setdefault(line, []).append(run.label)
    return [
        line if len(labels) == len(runs) else f"{line} ({', '.join(labels)})"
        for line, labels in labels_by_warning.items()
    ] + other_problems(runs)


def limited_label(run: RunFacts) -> str:
    """Return a run's label, marked if it is limited to some of the dataset's problems, or what stopped it."""
    marks = ["LIMITED"] if run.summary.limited else []
    return f"{run.label} ({', '.join(marks)})" if marks else run.label


def _share_interval(estimate: Estimate | None) -> str:
    ends = estimate.clipped(1.0) if estimate else None
    return span(*ends, 1, 100) if ends else NOTHING


def _latency_interval(estimate: Estimate | None) -> str:
    ends = estimate.clipped() if estimate else None
    return f"{number(ends[0])} to {number(ends[1])}" if ends else NOTHING


def _sum(values: Iterable[float]) -> str:
    addends = list(values)
    return number(sum(addends)) if addends else NOTHING


def _graders(runs: Sequence[RunFacts]) -> str:
    return "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))


@dataclass(frozen=True)
class Figure:
    """Charts with a common caption."""

    title: str
    charts: Mapping[str, Chart]
    """By the name of the chart's file without its ending, which is unique in the report."""
    caption: str
    keyed: Sequence[int] = ()
    """Indices of the runs in the key below the charts."""
    sql: str = ""
    """The statement behind the figure, for `warehouse.query`."""
    command: str = ""
    """The command that prints what SQL does not give; empty: none."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """Anchor in the page."""
    title: str
    short: str
    """Title in the page's navigation."""
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[Table] = field(default=())
    warnings: Sequence[str] = field(default=())
    """Lines for the top of the report."""


def behind(statement: str, runs: Sequence[RunFacts]) -> str:
    """Return the statement behind a figure of these runs."""
    return copyable(statement, [run.summary.run_id for run in runs])


def verdict_table(runs: Sequence[RunFacts]) -> Table:
    """Return the table of all samples by verdict."""
    kinds = ordered_verdicts(runs)
    rows = [
        (
            limited_label(run),
            *(str(run.summary.verdicts.get(kind, 0)) for kind in kinds),
            str(sum(run.summary.verdicts.values())),
        )
        for run in runs
    ]
    caption = (
        "Every planned sample has exactly one verdict, and the verdicts sum to problems × samples: no problem leaves "
        f"the denominator.{ungraded(runs)}"
    )
    columns = ("run", *(kind.replace("_", " ") for kind in kinds), "sum")
    return Table("verdicts", "Verdicts", columns, rows, caption, range(len(runs)))


def ungraded(runs: Sequence[RunFacts]) -> str:
    """Return a sentence on the finished samples without a grade, which count under the verdict not_run."""
    num_ungraded = sum(run.summary.num_ungraded for run in runs)
    return f' "not run" includes {num_ungraded:,} finished samples without a grade.' if num_ungraded else ""


def ordered_verdicts(runs: Sequence[RunFacts]) -> list[str]:
    """Return all verdicts in the report's order."""
    first = (
        "correct",
        "wrong",
        "truncated",
        "no_answer",
        "unparsable",
        "error",
        "grader_timeout",
        "bad_gold",
        "not_run",
    )
    present = {verdict for run in runs for verdict in run.summary.verdicts}
    return [verdict for verdict in first if verdict in present] + sorted(present - set(first))


_AT_ONE_COLUMNS = (
    "run", "samples timed", "mean s", "95 % interval", "baseline", "baseline's samples timed", "speed-up ×",
    "95 % interval of the speed-up",
)  # fmt: skip
_AT_ONE_CAPTION = (
    "Mean latency of a sample with one sample in flight. All samples ran in full batches, and some of them again, one "
    "at a time: the mean is the latency model's prediction over all chains plus its stratum-weighted mean error on the "
    "timed ones, which is unbiased whatever the model. Speed-up: mean latency of the target alone divided by that of "
    "the run, over the problems of both. The intervals cover the choice of the problems and of the timed samples."
)


def latencies_at_one(runs: Sequence[RunFacts]) -> Table | None:
    """Return the table; None where no run has timing samples."""
    names = {run.summary.run_id: run.label for run in runs}
    rows: list[tuple[str, ...]] = []
    places: list[int] = []
    for place, run in enumerate(runs):
        timed = run.summary.at_one
        if timed is None:
            continue
        own = (
            limited_label(run),
            f"{timed.num_timed} of {timed.num_samples}",
            number(timed.mean_seconds),
            span(timed.low_95, timed.high_95, 3),
        )
        ratios = [ratio for ratio in run.summary.speed_ups_at_one if ratio.baseline_run_id in names]
        rows += [(*own, names[ratio.baseline_run_id], *_at_one_cells(ratio)) for ratio in ratios] or [
            (*own, *[NOTHING] * 4)
        ]
        places += [place] * max(1, len(ratios))
    if not rows:
        return None
    return Table("latency-at-one", "Latency, one sample at a time", _AT_ONE_COLUMNS, rows, _AT_ONE_CAPTION, places)


def _at_one_cells(ratio: SpeedUpAtOne) -> tuple[str, str, str]:
    within = "" if ratio.run_factor else " within these runs"
    interval = span(ratio.low_95, ratio.high_95, 2) + within
    return str(ratio.num_timed_of_baseline), fixed(ratio.speed_up, 2), interval


_PROBE_ESTIMATES = """
SELECT source_run_id, probe.run_id AS probe_run_id, metric, group_kind, group_value, n, num_samples, estimate,
    low_95, high_95, interval_kind
FROM counted_estimate JOIN (SELECT DISTINCT run_id, source_run_id FROM probe) AS probe USING (run_id)
WHERE metric LIKE 'probe_%' AND probe.run_id IN (SELECT unnest($run_ids)) ORDER BY ALL
"""


def probe_tables(runs: Sequence[RunFacts]) -> list[Table]:
    """Return the table of the newest probe of each run, if any run was probed; its SQL is of the same probes."""
    rows, places = [], []
    for place, run in enumerate(runs):
        for name, *cells in cells_of(run.probe["estimates"]) if run.probe else ():
            rows.append((limited_label(run), name, *cells))
            places.append(place)
    if not rows:
        return []
    sentences = " ".join(sentence for run in runs if run.probe for sentence in _probe_sentences(run, run.probe))
    columns = ("run", "decisions", *(f"{heading} %" for heading in RATES.values()))
    statement = copyable(_PROBE_ESTIMATES, [str(run.probe["run_id"]) for run in runs if run.probe])
    return [
        Table(
            "probe",
            "What the judge really lets through",
            columns,
            rows,
            f"{EXPLAINED} {sentences}",
            places,
            sql=statement,
        )
    ]


def _probe_sentences(run: RunFacts, probe: Record) -> Iterator[str]:
    yield (
        f"{run.label}: {probe['num_points']} points with {probe['num_rollouts']} continuations each way, of "
        f"{probe['run_id']}{', the newest of several probes' if run.num_probes > 1 else ''}."
    )
    yield from left_out(probe)
    yield from areas(probe)


def conditions(runs: Sequence[RunFacts]) -> Table:
    """Return the table with what differs, in a column for each run, and behind it what all runs have in common."""
    different: list[tuple[str, ...]] = []
    common: list[tuple[str, ...]] = []
    differs: set[int] = set()
    for name, read in _CONDITIONS:
        cells = [_condition(read(run)) for run in runs]
        if len(set(cells)) > 1:
            if name not in _EXPECTED and _is_marked(name, runs, cells):
                differs.add(len(different))
            different.append((name, "", *cells))
        elif cells[0] != NOTHING:
            common.append((name, cells[0], *("" for _ in runs)))
    rows = [*different, *common] if len(runs) > 1 else [row[:2] for row in common]
    caption = (
        "Marked lines differ between the runs and can explain differences in the results."
        if differs
        else (
            "The runs differ only in the method, its parameters and the time of the run."
            if len(runs) > 1
            else "The run's specification, and the environment of its workers."
        )
    )
    columns = ("setting", "all runs", *(run.label for run in runs)) if len(runs) > 1 else ("setting", runs[0].label)
    title = "Settings and environment"
    return Table("conditions", title, columns, rows, caption, is_sortable=False, differs=frozenset(differs))


def _is_marked(name: str, runs: Sequence[RunFacts], cells: Sequence[str]) -> bool:
    """Return whether the cells of a line differ. The code of a method of one's own is part of its runs' code."""
    by_method: dict[object, set[str]] = {}
    for run, cell in zip(runs, cells, strict=True):
        by_method.setdefault(run.conditions["method_code"] if name == _CODE_LINE else None, set()).add(cell)
    return any(len(values - {NOTHING}) > 1 for values in by_method.values())


def model(run: RunFacts, role: str) -> str:
    """Return name and revision of a run's draft or target model."""
    name, revision = run.conditions[f"{role}_name"], run.conditions[f"{role}_revision"]
    return f"{name} @ {str(revision)[:10]}" if name and revision else name or NOTHING


def _tensor_parallel(run: RunFacts) -> str:
    c = run.conditions
    return f"{c['engine_draft_tensor_parallel']} / {c['engine_target_tensor_parallel']}"


def _speculation(run: RunFacts) -> str | None:
    setting = run.summary.token_speculation
    if setting is None:
        return None
    model = f" ({setting.model})" if setting.model else ""
    return f"{setting.proposer}{model}, {setting.num_tokens} tokens"


def _versions(run: RunFacts) -> str:
    versions = [json.loads(text) for text in run.conditions["versions"] or () if text]
    return " | ".join(", ".join(f"{name} {version}" for name, version in packages.items()) for packages in versions)


def _condition(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)


_CODE_LINE = "hash of the code"
_CONDITIONS: tuple[tuple[str, Callable[[RunFacts], object]], ...] = (
    ("run folder", lambda r: r.summary.run_id),
    ("method", lambda r: r.summary.method),
    ("source of the method", lambda r: r.conditions["method_source"]),
    ("code of the method", lambda r: r.conditions["method_code"]),
    ("parameters", lambda r: ", ".join(f"{n} {v}" for n, v in r.summary.params.items())),
    ("preset", lambda r: r.conditions["preset"]),
    ("draft", lambda r: model(r, "draft")),
    ("target", lambda r: model(r, "target")),
    ("reward model", lambda r: model(r, "reward")),
    ("dataset", lambda r: r.summary.dataset),
    ("source of the problems", lambda r: r.conditions["dataset_source"]),
    ("problems", lambda r: f"{r.summary.n} of {r.summary.dataset_size}"),
    ("samples per problem", lambda r: r.summary.k),
    ("hash of the problems", lambda r: r.conditions["dataset_hash"]),
    ("hash of the prompts", lambda r: f"{r.conditions['prompt_hash']}{own_wording(r.conditions['prompts'])}"),
    ("temperature", lambda r: r.conditions["temperature"]),
    ("top-p", lambda r: r.conditions["top_p"]),
    ("sampling of the draft", lambda r: r.conditions["draft_sampling"]),
    ("sampling of the target", lambda r: r.conditions["target_sampling"]),
    ("template variables of the draft", lambda r: r.conditions["draft_template"]),
    ("template variables of the target", lambda r: r.conditions["target_template"]),
    ("thinking tags of the draft", lambda r: r.conditions["draft_thinking_tags"]),
    ("thinking tags of the target", lambda r: r.conditions["target_thinking_tags"]),
    ("engine arguments of the draft", lambda r: r.conditions["engine_draft_arguments"]),
    ("engine arguments of the target", lambda r: r.conditions["engine_target_arguments"]),
    ("token budget", lambda r: r.conditions["token_budget"]),
    ("seed", lambda r: r.conditions["seed"]),
    ("engine", lambda r: f"{r.conditions['engine_kind']}, {r.conditions['engine_dtype']}"),
    ("tensor parallel, draft / target", _tensor_parallel),
    ("tensor parallel, reward model", lambda r: r.conditions["engine_reward_tensor_parallel"]),
    ("samples in flight per worker", lambda r: r.summary.concurrency),
    ("engines run", lambda r: "in turns" if r.summary.take_turns else "concurrently"),
    ("token-level speculation", _speculation),
    ("sampling of proposed tokens", lambda r: r.conditions["engine_spec_sampling"]),
    ("devices per worker", lambda r: r.conditions["devices"]),
    ("nodes", lambda r: r.conditions["num_nodes"]),
    ("worker attempts", lambda r: r.conditions["num_workers"]),
    ("harness commit", lambda r: r.conditions["git_commits"]),
    (_CODE_LINE, lambda r: r.conditions["code_hashes"]),
    ("packages", _versions),
    ("grader", lambda r: r.summary.grader_version),
    ("planned (UTC)", lambda r: r.conditions["created_at"].strftime("%Y-%m-%d %H:%M")),
)
_EXPECTED = {"run folder", "method", "source of the method", "code of the method", "parameters", "preset", "nodes"}
_EXPECTED |= {"source of the problems", "planned (UTC)", "worker attempts"}
"""Lines that are expected to differ between compared runs."""
