"""Print run summaries as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from rich.console import Console

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, number, percent, span
from harness.cli.screen import Column, Line, Screen, Table
from harness.engines import registry
from harness.engines.speculation import greedy_drafts_notice
from harness.trace import VERDICT_KINDS
from warehouse.measures import MEASURES
from warehouse.summary import CodeShare, LatencyAtOne, RunSummary, SpeedUp, SpeedUpAtOne, TokenSpeculation

_BUSY = 1.5
"""Load for each core from which times are no longer those of the run's own work."""
_NEARLY_FULL = 0.9
"""Share of the concurrency from which the mean number of samples in flight is not printed beside it."""


def render(summaries: Sequence[RunSummary], console: Console | None = None) -> None:
    """Print the warnings and the table of each run."""
    screen = Screen(console or Console(), is_fitted=True)
    columns = [Column("", style="bold"), Column("", is_right=False, is_folded=True)]
    for run in summaries:
        screen.show([*(Line(line, "bold red") for line in warnings(run)), Table(columns, lines(run), title=run.run_id)])


def in_one_line(run: RunSummary) -> str:
    """Return the result in the numbers that tell runs of a suite apart: `96.2 ± 2.8 %  1.68×  fallback 21.3 %`."""
    result = run.result
    if result is None:
        shown = "not graded"
    else:
        error = "" if result.standard_error is None else f" ± {100 * result.standard_error:.1f}"
        shown = f"{100 * result.estimate:.1f}{error} %"
    parts = [shown.rjust(13)]
    parts += [f"{ratio.speed_up:.2f}×" for ratio in run.speed_ups[:1] if len(run.speed_ups) == 1]
    parts += [f"fallback {percent(run.fallback_rate)}"] if run.num_decisions else []
    parts += [counted(errors, "error")] if (errors := run.verdicts.get("error", 0)) else []
    parts += [f"{missing} of {run.num_planned} missing"] if (missing := run.num_not_run + run.num_ungraded) else []
    return "  ".join(parts)


def render_warnings(summaries: Sequence[RunSummary], console: Console) -> None:
    """Print the warnings of each run."""
    Screen(console, is_fitted=True).show(Line(line, "bold red") for run in summaries for line in warnings(run))


def warnings(run: RunSummary) -> list[str]:
    """Return one line for each reason why these numbers are no benchmark result, or come from a weak baseline."""
    total = run.num_planned
    incomplete = []
    if run.num_not_run:
        incomplete.append(
            f"INCOMPLETE RUN: {run.num_not_run} of {total} samples have not been run"
            + ("; long chains finish last, so that what is there is mostly the shorter ones." if run.result else ".")
        )
    if run.num_ungraded:
        incomplete.append(
            f"NOT GRADED: {run.num_ungraded} of {total} samples are finished but have no grade{_by_grader(run)}."
        )
    return [
        *scripted(run),
        *limited(run),
        *repeated(run),
        *mixed_code(run),
        *incomplete,
        *grader_exceptions(run),
        *unreadable(run),
        *busy(run),
        *weaker_baseline(run),
    ]


def scripted(run: RunSummary) -> list[str]:
    """Return a warning where no model wrote the answers."""
    return [f"{run.engine_kind.upper()} ENGINES: no model ran; the numbers mean nothing."] if _is_uncounted(run) else []


def _is_uncounted(run: RunSummary) -> bool:
    return run.engine_kind in registry.uncounted()


def busy(run: RunSummary) -> list[str]:
    """Return a warning where a machine had clearly more to do than its cores could; without a model times mean nothing.

    One that works for a run alone has a load of about 1 for each core while it generates on them.
    """
    if _is_uncounted(run) or run.load_per_core is None or run.load_per_core < _BUSY:
        return []
    return [
        f"BUSY MACHINE: a load of {run.load_per_core:.1f} for each core at the start or end of the run's work; its "
        "times are longer than on an idle machine."
    ]


def limited(run: RunSummary) -> list[str]:
    """Return a warning where the run is over some of its dataset's problems only."""
    if not run.limited:
        return []
    return [f"LIMITED RUN: {run.n} of the {run.dataset_size} problems of {run.dataset}; not a benchmark result."]


def repeated(run: RunSummary) -> list[str]:
    """Return a warning where the samples of a problem repeat each other."""
    if not run.is_greedy or run.k < 2:
        return []
    return [
        f"GREEDY: no model was sampled, so that the {run.k} samples of a problem repeat the first and count as one: "
        "there is no pass@k."
    ]


def completion(run: str, num_not_run: int) -> str:
    """Return the command that runs the missing samples of a run, or grades them where all have run."""
    return f"python -m jobs {'resume' if num_not_run else 'finalize'} {quote(run)}"


def mixed_code(run: RunSummary) -> list[str]:
    """Return a warning where more than one code worked on the run."""
    if len(run.codes) < 2:
        return []
    shares = "; ".join(f"{_code(code)}: {counted(code.num_samples, 'sample')}" for code in run.codes)
    return [f"MIXED CODE: the code changed while the run was under way. {shares}."]


def _code(code: CodeShare) -> str:
    return f"{code.code_hash} (commit {code.git_commits})" if code.git_commits else code.code_hash


def grader_exceptions(run: RunSummary) -> list[str]:
    """Return a warning where the grader's own code failed on answers."""
    if not run.grader_exceptions:
        return []
    ended = counted(sum(run.grader_exceptions.values()), "answer")
    names = ", ".join(f"{name} {number}" for name, number in run.grader_exceptions.items())
    return [f"GRADER EXCEPTIONS: {ended} ended in an exception of the grader; counted as unparsable: {names}."]


def unreadable(run: RunSummary) -> list[str]:
    """Return one line for each file of the run that was left out."""
    return [f"LEFT OUT: {file.name} cannot be read: {file.reason}" for file in run.skipped]


def lines(run: RunSummary) -> list[tuple[str, str]]:
    """Return the name and the value of every line of the table."""
    tokens = run.tokens.values()
    draft = run.tokens.get("draft")
    share = draft.emitted_share if draft else None
    params = ", ".join(f"{name} {value}" for name, value in run.params.items())
    return [
        ("method", f"{run.method}: {params}" if params else run.method),
        ("dataset", f"{run.dataset}: {counted(run.n, 'problem')} × {counted(run.k, 'sample')} = {run.num_planned}"),
        ("models", " → ".join(model for model in (run.draft, run.target) if model)),
        *([("reward model", run.reward)] if run.reward else []),
        *_accuracy(run),
        ("verdicts", _counts(run.verdicts)),
        ("grader", _grader(run)),
        ("fallback rate", fallback(run)),
        *([("rejected, then repeated", _repeated(run))] if run.num_refused else []),
        (
            "tokens per sample",
            f"emitted {number(sum(t.emitted_per_sample for t in tokens))}"
            + (f" ({percent(share)} by the draft)" if share is not None else "")
            + f", spent {number(sum(t.spent_per_sample for t in tokens))}"
            f", critical path {number(sum(t.critical_path_per_sample for t in tokens))}",
        ),
        ("latency", _latency(run)),
        *([("one at a time", _at_one(run.at_one))] if run.at_one else []),
        ("latency split", ", ".join(f"{part} {percent(s)}" for part, s in run.latency_shares.items()) or NOTHING),
        ("cache hit rate", f"{percent(run.value('cache_hit_rate'))} of prompt tokens"),
        *_further(run),
        ("tokens per second", _speed(run)),
        *([("token speculation", token_speculation(run.token_speculation))] if run.token_speculation else []),
        *(("speed-up", _speed_up(ratio)) for ratio in run.speed_ups),
        *(("one at a time", _speed_up_at_one(ratio)) for ratio in run.speed_ups_at_one),
    ]


def _further(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the measures that have a line of their own."""
    for name, measure in MEASURES.items():
        if "summary" in measure.shown and name in run.numbers:
            found = run.numbers[name].interval
            factor, unit = (100, " %") if measure.is_percent else (1, f" {measure.unit}")
            interval = "" if found.low is None else f" (95 % {span(found.low, found.high, 1, factor)})"
            yield measure.title, f"{number(factor * found.estimate)}{unit}{interval}"


def token_speculation(setting: TokenSpeculation) -> str:
    """Return who proposes tokens to the target, how, and how many of them are confirmed."""
    model = f" ({setting.model})" if setting.model else ""
    sampling = f", {setting.draft_sampling} drafts" if setting.draft_sampling else ""
    confirmed = ""
    if setting.acceptance_rate is not None:
        confirmed = f": {percent(setting.acceptance_rate)} of the proposed tokens confirmed"
        confirmed += f", {setting.tokens_per_pass:.2f} tokens per pass" if setting.tokens_per_pass else ""
    return f"{setting.proposer}{model}, up to {setting.num_tokens} at a time{sampling}{confirmed}"


def weaker_baseline(run: RunSummary) -> list[str]:
    """Return a warning where greedy drafts make token-level speculation slower than it could be."""
    sampling = run.token_speculation.draft_sampling if run.token_speculation else None
    notice = greedy_drafts_notice(sampling, run.temperature)
    return [f"{notice}."] if notice else []


def _accuracy(run: RunSummary) -> list[tuple[str, str]]:
    """Return the lines of pass@1, which is over the samples that are there, as in a comparison."""
    result, planned = run.result, run.num_planned
    there = f", {run.num_result_samples} of {planned} samples" if run.is_unfinished else ""
    name = f"pass@1[avg-of-{run.k}{there}]"
    if result is None:
        return [(name, f"{NOTHING} (no sample is finished and graded)")]
    shown = f"{100 * result.estimate:.2f} %"
    if result.standard_error is None or result.low is None or result.high is None:
        shown += " (one problem: no standard error)"
    else:
        shown += (
            f" ± {100 * result.standard_error:.2f} standard error over problems, "
            f"95 % interval {100 * result.low:.1f} to {100 * result.high:.1f} % ({result.kind})"
        )
    if not run.is_unfinished:
        return [(name, shown)]
    ends = f"{100 * run.pass_at_1:.2f} to {100 * run.highest_pass_at_1:.2f} %"
    return [(name, shown), ("once complete", f"{ends}: if all missing samples are wrong, or all are right")]


def fallback(run: RunSummary) -> str:
    """Return the fallback rate with the number of decisions that it is over, and by what they were made."""
    if not run.num_decisions:
        return NOTHING
    are_verdicts = set(run.decision_kinds) <= VERDICT_KINDS
    shown = f"{percent(run.fallback_rate)} of {run.num_decisions}"
    return f"{shown} verdicts" if are_verdicts else f"{shown} decisions ({', '.join(run.decision_kinds)})"


def _repeated(run: RunSummary) -> str:
    """Say how often the target wrote what it had just rejected: above half, the judge's question is to be doubted."""
    shown = f"{run.num_repeated} of {run.num_refused} fallbacks have the text of a rejected candidate"
    return f"{shown}: CHECK THE JUDGE (SELECT * FROM refusals)" if 2 * run.num_repeated > run.num_refused else shown


def _counts(verdicts: Mapping[str, int]) -> str:
    """List the verdicts that occur, correct and wrong in any case, and their sum."""
    shown = {v: n for v, n in verdicts.items() if n or v in {"correct", "wrong"}}
    ordered = sorted(shown, key=lambda v: (v != "correct", v != "wrong", v == "not_run", v))
    return ", ".join(f"{v} {shown[v]}" for v in ordered) + f"; sum {sum(verdicts.values())}"


def _grader(run: RunSummary) -> str:
    others = run.num_grader_versions - 1
    version = run.grader_version or NOTHING
    return f"{version} (the newest; {others} other version(s) kept, not counted)" if others > 0 else version


def _by_grader(run: RunSummary) -> str:
    return f" of the newest grader version ({run.grader_version})" if run.grader_version else ""


def _latency(run: RunSummary) -> str:
    unasked = f"; {counted(run.num_unasked, 'sample')} without a request to a model" if run.num_unasked else ""
    if not run.num_timed:
        return f"{NOTHING} (no sample was finished in one attempt{unasked})"
    return (
        f"mean {number(run.value('latency_seconds'))} s, median {number(run.median_latency_seconds)} s per sample, "
        f"{_in_flight(run)} in flight, {run.num_timed} samples timed{unasked}"
    )


def _at_one(timed: LatencyAtOne) -> str:
    ends = timed.low_95, timed.high_95
    interval = f" (95 % {number(ends[0])} to {number(ends[1])})" if None not in ends else ""
    return f"mean {number(timed.mean_seconds)} s{interval} per sample, from {timed.num_timed} of {timed.num_samples}"


def _speed_up_at_one(ratio: SpeedUpAtOne) -> str:
    within = "" if ratio.run_factor else " within these runs"
    interval = f" (95 % {ratio.low_95:.2f} to {ratio.high_95:.2f}{within})" if ratio.low_95 and ratio.high_95 else ""
    unlike = "" if ratio.same_versions else "; UNLIKE PACKAGE VERSIONS"
    timed = f"{ratio.num_timed} and {ratio.num_timed_of_baseline} samples timed"
    return f"{ratio.speed_up:.2f}×{interval} over {ratio.baseline_run_id}, ratio of mean latencies, {timed}{unlike}"


def _in_flight(run: RunSummary) -> str:
    """Return the samples in flight, with their mean where it is clearly lower, as with a small KV cache."""
    mean = run.mean_samples_in_flight
    if mean is None or mean > _NEARLY_FULL * run.concurrency:
        return str(run.concurrency)
    return f"at most {run.concurrency} ({mean:.1f} on average)"


def _speed(run: RunSummary) -> str:
    wall = f"{number(run.emitted_tokens_per_second)} emitted per worker"
    return ", ".join([wall, *(f"{model} {number(s)} in its calls" for model, s in run.tokens_per_call_second.items())])


def _speed_up(ratio: SpeedUp) -> str:
    within = "" if ratio.run_factor else " within these runs"
    interval = f" (95 % {ratio.low_95:.2f} to {ratio.high_95:.2f}{within})" if ratio.low_95 and ratio.high_95 else ""
    means = f"; ratio of mean latencies {ratio.ratio_of_means:.2f}"
    if ratio.ratio_of_means_low_95 and ratio.ratio_of_means_high_95:
        means += f" ({ratio.ratio_of_means_low_95:.2f} to {ratio.ratio_of_means_high_95:.2f})"
    unlike = "" if ratio.same_versions else "; UNLIKE PACKAGE VERSIONS"
    return (
        f"{ratio.speed_up:.2f}×{interval} over {ratio.baseline_run_id}, {ratio.n} problems: "
        f"rate {ratio.rate_ratio:.2f}, chain length {ratio.chain_length_ratio:.2f}{means}{unlike}"
    )
