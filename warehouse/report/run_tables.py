"""The report's tables, shared by HTML, Markdown and LaTeX, and what its sections are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from grading.grade import VERDICTS
from harness.cli.number_format import NOTHING, fixed, number, sides, span
from harness.cli.screen import Cell, Column, Table
from harness.engine import Role
from warehouse.comparison.manifests import wording
from warehouse.comparison.show import merged
from warehouse.measures import MEASURES, Measure
from warehouse.model_columns import SHOWN_COLUMNS, column_of, model_columns
from warehouse.report.facts import Estimate, RunFacts, other_problems
from warehouse.report.svg import Chart
from warehouse.summary import Against, Number

INTERVAL = (
    "Intervals are 95 % confidence intervals on problems like these (Wilson, with the effective number of problems)."
)


@dataclass(frozen=True)
class RunTable(Table):
    """A table of the report. The first column names the row."""

    name: str = ""
    """CSS class in the page, and label in LaTeX."""
    places: Sequence[int] = ()
    """Index in the report of the run that each row is about, whose mark is drawn beside it; empty: none."""
    is_sortable: bool = True
    """Whether the page lets its rows be sorted, and numbers are aligned right."""
    sql: str = ""
    """The statement behind the table, for `warehouse.query`; empty: that of the figure above it, or none."""
    differs: frozenset[int] = frozenset()
    """Indices of the rows that are marked because the runs differ unexpectedly."""


def run_table(
    name: str,
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    caption: str,
    places: Sequence[int] = (),
    *,
    is_sortable: bool = True,
    sql: str = "",
    differs: frozenset[int] = frozenset(),
) -> RunTable:
    """Return a table of the report; see `RunTable`."""
    columns = [Column(header, is_right=bool(place) and is_sortable) for place, header in enumerate(headers)]
    return RunTable(columns, rows, [caption], title, name, places, is_sortable, sql, differs)


OfRun = tuple[str, Callable[[RunFacts], Cell]]
"""A column of a table with a row for each run: its name, and how its cells are read."""


def _of_each_run(name: str, title: str, runs: Sequence[RunFacts], columns: Sequence[OfRun], caption: str) -> RunTable:
    """Return a table with a row for each run."""
    cells = [(limited_label(run), *(read(run) for _, read in columns)) for run in runs]
    return run_table(name, title, ("run", *(header for header, _ in columns)), cells, caption, range(len(runs)))


def results(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of accuracies."""
    graders = "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))
    caption = (
        "pass@1: mean over n problems of the share of their k samples that are correct, as in summaries and "
        "comparisons. Samples that were not run or not graded are left out; how many are there is in brackets, and "
        '"once complete" is what pass@1 becomes if all missing samples are wrong, or all are right. '
        f"{INTERVAL} Re-run SE: standard error over "
        f"re-runs of the same problems, in percentage points. Grader: {graders}."
    )
    columns: list[OfRun] = [
        ("dataset", lambda run: run.summary.dataset),
        ("n × k", _size),
        ("pass@1 %", lambda run: fixed(_value(run.accuracy), 2)),
        ("95 % interval", lambda run: _interval(run.accuracy, 1)),
        ("re-run SE", lambda run: fixed(run.rerun_standard_error, 2, 100)),
        ("once complete %", _once_complete),
        ("not run", lambda run: str(run.summary.num_not_run)),
        ("not graded", lambda run: str(run.summary.num_ungraded)),
    ]
    return _of_each_run("results", "Results", runs, columns, caption)


def _size(run: RunFacts) -> str:
    s = run.summary
    return f"{s.n} × {s.k}" + (f" ({s.num_result_samples} of {s.planned})" if s.is_unfinished else "")


def _once_complete(run: RunFacts) -> str:
    s = run.summary
    return span(s.pass_at_1, s.highest_pass_at_1, 2, 100) if s.result and s.is_unfinished else NOTHING


def verdicts(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of all samples by verdict."""
    columns = [_of_verdict(kind) for kind in VERDICTS]
    columns.append(("sum", lambda run: str(sum(run.summary.verdicts.values()))))
    caption = (
        "Every planned sample has exactly one verdict, and the verdicts sum to problems × samples: no problem leaves "
        'the denominator. "not run" includes finished samples without a grade.'
    )
    return _of_each_run("verdicts", "Verdicts", runs, columns, caption)


def _of_verdict(kind: str) -> OfRun:
    return kind.replace("_", " "), lambda run: str(run.summary.verdicts.get(kind, 0))


def efficiency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of fallback rates and tokens."""
    columns: list[OfRun] = [
        *(column for measure in MEASURES.values() if "report" in measure.shown for column in _of_measure(measure)),
        ("decisions", lambda run: str(run.summary.num_decisions or NOTHING)),
        ("emitted", lambda run: number(run.summary.value("emitted_tokens"))),
        ("spent", lambda run: number(run.summary.value("spent_tokens"))),
        ("critical path", lambda run: number(run.summary.value("critical_path_tokens"))),
    ]
    caption = (
        "Fallback: share of the decisions (verdicts, or the method's own) that rejected every candidate, with a 95 % "
        "interval over problems. Tokens are per finished sample. Emitted: tokens of the accepted chain. Spent: all "
        "output tokens of all calls, including rejected candidates and verdicts. Critical path: tokens that a user "
        "waits for, which counts only the longest of parallel candidates."
    )
    return _of_each_run("efficiency", "Fallback and tokens", runs, columns, caption)


def _of_measure(measure: Measure) -> Iterator[OfRun]:
    """Yield the columns of a measure: its value, and its interval."""
    factor, unit = (100, "%") if measure.is_percent else (1, measure.unit)

    def estimate(run: RunFacts) -> Estimate | None:
        found = run.estimate(measure.name)
        return found and found.scaled(factor, 1.0 if measure.is_percent else math.inf)

    yield (
        measure.title if unit in measure.title else f"{measure.title} {unit}",
        lambda run: fixed(_value(estimate(run)), 1),
    )
    yield "95 % interval", lambda run: _interval(estimate(run), 1)


def latency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of latencies."""
    columns: list[OfRun] = [
        ("in flight", lambda run: str(run.summary.concurrency)),
        ("devices", lambda run: run.conditions["devices"] or NOTHING),
        ("samples timed", lambda run: str(run.summary.num_timed)),
        ("mean s", lambda run: number(_value(run.estimate("latency_seconds")))),
        ("95 % interval", _latency_interval),
        ("median s", lambda run: number(run.summary.median_latency_seconds)),
        ("95th percentile s", lambda run: number(run.p95_seconds)),
        ("samples/s", lambda run: number(_value(run.estimate("samples_per_second")))),
        ("tokens/s", lambda run: number(_value(run.estimate("emitted_tokens_per_second")))),
    ]
    caption = (
        "Wall time per sample, over samples that finished in one attempt without an error. Mean: mean over problems "
        "of the mean over their samples, with a 95 % interval. Median and percentile: over samples. Several samples "
        "in flight share the engines, so a sample's time includes waiting for the others: only compare runs with the "
        "same number in flight on the same devices. samples/s, tokens/s: samples and emitted "
        "tokens of a worker per second while all its slots are full, with 5 samples per slot or more."
    )
    return _of_each_run("latency", "Latency", runs, columns, caption)


def _latency_interval(run: RunFacts) -> str:
    latency = run.estimate("latency_seconds")
    clipped = latency and latency.scaled()
    return f"{number(clipped.low)} to {number(clipped.high)}" if clipped and clipped.low is not None else NOTHING


def speed_ups(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of speed-ups over the runs of the target alone that are in the report."""
    names = {run.summary.run_id: run.label for run in runs}
    timed = [
        (run, *pair)
        for run in runs
        for pair in run.summary.against_with("speed_up")
        if pair[0].baseline_run_id in names
    ]
    rows = [
        (
            limited_label(run),
            names[pair.baseline_run_id],
            str(found.n),
            *_speed_up_cells(run, pair, found),
            fixed(pair.measures["rate_ratio"].value, 2),
            fixed(pair.measures["chain_length_ratio"].value, 2),
            "yes" if pair.same_versions else "NO",
        )
        for run, pair, found in timed
    ]
    columns = (
        "run", "baseline", "problems", "speed-up ×", "95 % interval", "rate ratio", "chain length ratio",
        "same packages",
    )  # fmt: skip
    caption = (
        "Latency of the target alone divided by the latency of the run: geometric mean over the problems that both "
        "finished, with a 95 % interval (bootstrap-t on logarithms), averaged over all finished repeats. With three "
        "repeats it covers how much times differ from one run to the next, and else it holds within these runs only: "
        "identical work has come out 17 % apart, and twice as long on a busy machine. Above 1 the run is faster. "
        "Speed-up = rate ratio / chain length ratio. Only runs with the same target, sampling, engine, devices and "
        "number in flight are compared."
    )
    places = [run.place for run, *_ in timed]
    return run_table("speed-up", "Speed-up over the target alone", columns, rows, caption, places)


def _speed_up_cells(run: RunFacts, pair: Against, found: Number) -> tuple[str, str]:
    """Return the ratio with the cards of both sides where they differ, and its interval with what it covers."""
    within = "" if found.run_factor else " within these runs"
    runs = (1, 1) if found is pair.measures.get("speed_up_at_one") else pair.runs
    told = sides((run.summary.num_cards, pair.num_cards), runs)
    ends = span(found.low_95, found.high_95, 2) + within
    return fixed(found.value, 2) + (f" ({told})" if told else ""), ends


def latencies_at_one(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of the runs with timing samples."""
    names = {run.summary.run_id: run.label for run in runs}
    rows, places = [], []
    for run in runs:
        timed = run.summary.measures.get("latency_at_one")
        if timed is None:
            continue
        pairs = [pair for pair in run.summary.against_with("speed_up_at_one") if pair[0].baseline_run_id in names]
        cells = [
            (names[pair.baseline_run_id], str(pair.num_timed_at_one), *_speed_up_cells(run, pair, found))
            for pair, found in pairs
        ]
        for against in cells or [(NOTHING,) * 4]:
            rows.append(
                (
                    limited_label(run),
                    f"{run.summary.num_timed_at_one} of {timed.num_samples}",
                    number(timed.value),
                    span(timed.low_95, timed.high_95, 3),
                    *against,
                )
            )
            places.append(run.place)
    columns = (
        "run", "samples timed", "mean s", "95 % interval", "baseline", "baseline's samples timed", "speed-up ×",
        "95 % interval of the speed-up",
    )  # fmt: skip
    caption = (
        "Mean latency of a sample with one sample in flight. All samples ran in full batches, and some of them again, "
        "one at a time: the mean is the latency model's prediction over all chains plus its stratum-weighted mean "
        "error on the timed ones, which is unbiased whatever the model. Speed-up: mean latency of the target alone "
        "divided by that of the run, over the problems of both. The intervals cover the choice of the problems and of "
        "the timed samples."
    )
    return run_table("latency-at-one", "Latency, one sample at a time", columns, rows, caption, places)


def costs(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of device time."""
    rows = []
    for run in runs:
        finished = run.summary.finished
        for cost in run.costs:
            per_each = [
                number(3600 * cost.work_hours / count if count else None)
                for count in (finished, run.summary.verdicts.get("correct", 0))
            ]
            hours = (number(cost.work_hours), number(cost.start_hours))
            nothing = (NOTHING, NOTHING)
            by_device = (*nothing, *hours) if cost.device == "cpu" else (*hours, *nothing)
            rows.append((limited_label(run), cost.device, str(cost.num_attempts), *by_device, *per_each))
    columns = (
        "run", "device", "worker attempts", "GPU-hours of work", "of starts", "CPU worker-hours of work", "of starts",
        "device-seconds per sample", "device-seconds per correct answer",
    )  # fmt: skip
    caption = (
        "Number of devices of each worker × time from its start to the end of its last call (work), and × the start-up "
        "time of its engines. Per sample and per correct answer is work alone, because a start that runs share counts "
        "in full for the first of them. Not included: attempts that "
        "finished no sample, because they leave no record, and time in the scheduler's queue."
    )
    places = [run.place for run in runs for _ in run.costs]
    return run_table("cost", "Cost", columns, rows, caption, places)


def report_warnings(runs: Sequence[RunFacts]) -> list[str]:
    """Return the warnings on all runs, each once, with the labels of the runs that it applies to."""
    names = {run.summary.run_id: run.label for run in runs}
    lines = merged((f"{run.summary.run_id}: {line}" for run in runs for line in run.summary.warnings), names)
    return [*lines, *other_problems(runs)]


def limited_label(run: RunFacts) -> str:
    """Return a run's label, marked if it is limited to some of the dataset's problems."""
    return f"{run.label} (LIMITED)" if run.summary.limited else run.label


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def _interval(estimate: Estimate | None, digits: int) -> str:
    return span(estimate.low, estimate.high, digits) if estimate else NOTHING


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """The chart's file without its ending, unique in the report."""
    title: str
    chart: Chart
    caption: str
    keyed: Sequence[int] = ()
    """Indices of the runs in the key below the chart."""
    sql: str = ""
    """The statement behind the figure, for `warehouse.query`."""
    command: str = ""
    """The command that prints what it shows; empty: the statement does."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """Anchor in the page."""
    title: str
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[RunTable] = field(default=())
    warnings: Sequence[str] = field(default=())
    """Lines for the top of the report."""


def conditions(runs: Sequence[RunFacts]) -> RunTable:
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
    return run_table("conditions", title, columns, rows, caption, is_sortable=False, differs=frozenset(differs))


def _is_marked(name: str, runs: Sequence[RunFacts], cells: Sequence[str]) -> bool:
    """Return whether the cells of a line differ. The code of a method of one's own is part of its runs' code."""
    by_method: dict[object, set[str]] = {}
    for run, cell in zip(runs, cells, strict=True):
        by_method.setdefault(run.conditions["method_code"] if name == _CODE_LINE else None, set()).add(cell)
    return any(len(values - {NOTHING}) > 1 for values in by_method.values())


def model(run: RunFacts, role: Role) -> str:
    """Return name and revision of a run's draft or target model."""
    name, revision = (run.conditions[column] for column in model_columns("model", "revision", owners=(role,)))
    return f"{name} @ {str(revision)[:10]}" if name and revision else name or NOTHING


def _tensor_parallel(run: RunFacts) -> str:
    return " / ".join(str(run.conditions[column_of(role, "tensor_parallel")]) for role in ("draft", "target"))


def _speculation(run: RunFacts) -> str | None:
    setting = run.summary.token_speculation
    if setting is None:
        return None
    model = f" ({setting.model})" if setting.model else ""
    return f"{setting.proposer}{model}, {setting.num_tokens} tokens"


def _versions(run: RunFacts) -> str:
    versions = [json.loads(text) for text in run.conditions["versions"] or () if text]
    return " | ".join(", ".join(f"{name} {version}" for name, version in packages.items()) for packages in versions)


def _of_column(column: str, run: RunFacts) -> object:
    return run.conditions[column]


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
    ("hash of the prompts", lambda r: wording(r.conditions)),
    ("temperature", lambda r: r.conditions["temperature"]),
    ("top-p", lambda r: r.conditions["top_p"]),
    *((str(column.printed), partial(_of_column, column.name)) for column in SHOWN_COLUMNS),
    ("token budget", lambda r: r.conditions["token_budget"]),
    ("seed", lambda r: r.conditions["seed"]),
    ("engine", lambda r: f"{r.conditions['engine_kind']}, {r.conditions['engine_dtype']}"),
    ("tensor parallel, draft / target", _tensor_parallel),
    ("tensor parallel, reward model", partial(_of_column, column_of("reward", "tensor_parallel"))),
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
