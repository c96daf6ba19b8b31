"""Print one sample as text: `python -m warehouse.trace RUN PROBLEM_ID SAMPLE_INDEX`.

Model output is printed with its control characters escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from harness.cli.messages import counted
from harness.cli.screen import plain, terminal
from harness.engine import normalized
from jobs.arguments import RunName
from warehouse.files import WarehouseError
from warehouse.options import WarehouseCommand, database_option, default_database, wait_option

if TYPE_CHECKING:
    from warehouse.database import Connection

Row = dict[str, Any]

_SAMPLE = """
SELECT sample.*, problem.text, problem.answer, verdict, extracted, grade.detail, grader_version
FROM sample JOIN problem USING (run_id, problem_id) JOIN sample_grade AS grade USING (run_id, sample_id)
WHERE sample.run_id = $run_id AND sample.problem_id = $problem_id AND sample.sample_index = $sample_index
"""
_OF_SAMPLE = "SELECT * FROM {table} WHERE run_id = $run_id AND sample_id = $sample_id ORDER BY {order}"
_TABLES = {
    "step": "step_index",
    "candidate": "step_index, candidate_index",
    "verdict": "step_index, verdict_index",
    "call": "call_index",
}
"""Tables with the parts of a sample, and the columns that order their rows."""
_MOST_NAMED = 20


class UnknownSample(WarehouseError):
    """The sample is not in the database; the message lists the available ones."""


def trace_lines(connection: Connection, run_id: str, problem_id: str, sample_index: int) -> Iterator[Text]:
    """Yield the lines to print for one sample, safe for a terminal. Raises UnknownSample."""
    from warehouse.database import rows

    sample_key: dict[str, object] = {"run_id": run_id, "problem_id": problem_id, "sample_index": sample_index}
    samples: list[Row] = rows(connection, _SAMPLE, sample_key)
    if not samples:
        raise UnknownSample(_explain_missing(connection, run_id, problem_id, sample_index))
    sample = samples[0]
    yield from _opening(sample)
    key: dict[str, object] = {"run_id": run_id, "sample_id": sample["sample_id"]}
    steps, *of_steps = (rows(connection, _OF_SAMPLE.format(table=table, order=o), key) for table, o in _TABLES.items())
    for step in steps:
        yield from _step(step, *([row for row in of if row["step_index"] == step["step_index"]] for of in of_steps))
    *_, calls = of_steps
    later_calls = [row for row in calls if row["step_index"] >= len(steps)]
    if later_calls:
        yield plain("── after the last step", style="bold")
        yield from map(_call, later_calls)


def _opening(sample: Row) -> Iterator[Text]:
    yield plain(f"{sample['run_id']}  {sample['problem_id']}  sample {sample['sample_index']}", style="bold")
    if sample["stop_reason"] is None:
        yield plain("not finished", style="bold red")
    else:
        yield plain(
            f"{sample['stop_reason']} after {sample['latency_seconds']:.2f} s, "
            f"{counted(sample['num_attempts'], 'attempt')}, started {sample['started_at']} UTC"
        )
    if sample["error"]:
        yield plain(f"error: {sample['error']}", style="red")
    yield plain(f"verdict: {sample['verdict']}; answer {sample['extracted']!r}, gold {sample['answer']!r}")
    if sample["detail"]:
        yield plain(f"grader {sample['grader_version']}: {sample['detail']}", style="dim")
    for role in ("draft", "target"):
        if sample[f"{role}_prompt"]:
            yield plain(f"── prompt of the {role}", style="bold")
            yield _block(sample[f"{role}_prompt"])


def _step(step: Row, candidates: list[Row], verdicts: list[Row], calls: list[Row]) -> Iterator[Text]:
    color = "green" if step["author"] == "draft" else "cyan"
    yield plain(
        f"── step {step['step_index']}: {step['role']} by {step['author']}, {step['num_tokens']} tokens, "
        f"finish {step['finish']}, at {step['elapsed_seconds']:.2f} s",
        style=f"bold {color}",
    )
    has_options = step["verdict_kind"] == "choice"
    accepted_options = {row["option"] for row in candidates if row["accepted"]} - {None}
    for candidate in candidates:
        logprob = candidate["mean_logprob"]
        outcome = "✘ rejected" if step["decision_accepted"] is False else "– not chosen"
        if candidate["option"] in accepted_options:  # candidates of one option have the same text
            outcome = "✔ accepted" if candidate["accepted"] else "= same text as the accepted one:"
        place = candidate["option"] if has_options else None
        option = "" if place is None else f" (option {_option(step, place)})"
        yield plain(
            f"   {outcome} candidate {candidate['candidate_index']}"
            + option
            + f", {candidate['num_tokens']} tokens, finish {candidate['finish']}"
            + ("" if logprob is None else f", mean log-probability {logprob:.3f}"),
            style={"✘": "red", "–": "dim"}.get(outcome[0], "green"),
        )
        if candidate["option"] not in accepted_options:
            yield _block(candidate["text"], "      ")
    if step["decision_kind"] is not None and step["decision_kind"] != step["verdict_kind"]:
        yield plain(f"   decision ({step['decision_kind']}): {_decided(step)}", style="yellow")
    for verdict in verdicts:
        yield from _verdict(verdict, step["decision_threshold"] if verdict["kind"] == step["decision_kind"] else None)
    yield from map(_call, calls)
    yield _block(step["text"])


def _prompts(folder: Path, problem_id: str, sample_index: int, step: int) -> Iterator[Text]:
    from jobs.finished.step_prompts import prompts_of
    from jobs.run.folder import RunFolder

    try:
        calls = prompts_of(RunFolder(folder), problem_id, sample_index, step)
    except ValueError as error:
        raise WarehouseError(str(error)) from error
    for number, sent in enumerate(calls):
        call = sent.call
        told = "" if sent.is_as_recorded else ": reconstructed, because the trace does not contain the preceding reply"
        yield plain(f"── step {step}, call {number}: {call.purpose} by {call.model}{told}", style="bold")
        yield from map(_block, sent.prompts)


def _option(step: Row, place: int) -> str:
    """Return the name of an option in the judge's prompt, or its number from 1."""
    options = step["verdict_options"]
    return str(options[place] if place < len(options) else place + 1)


def _decided(step: Row) -> str:
    """Describe a decision made without a verdict, such as `rejected, 0.412 < 0.65`."""
    outcome = "accepted" if step["decision_accepted"] else "rejected"
    value, threshold = step["decision_value"], step["decision_threshold"]
    if value is None or threshold is None:
        return outcome if value is None else f"{outcome}, {value:.3g}"
    is_low = step["decision_accepts_below"]
    if step["decision_accepted"] != (value <= threshold if is_low else value >= threshold):
        return f"{outcome}, {value:.3g} (threshold {threshold:.3g})"
    accepting, refusing = ("≤", ">") if is_low else ("≥", "<")
    return f"{outcome}, {value:.3g} {accepting if step['decision_accepted'] else refusing} {threshold:.3g}"


def _verdict(verdict: Row, threshold: float | None) -> Iterator[Text]:
    logprobs, decision = verdict["logprobs"], verdict["decision"]
    shares = normalized(logprobs) if any(map(math.isfinite, logprobs)) else logprobs
    shown = "  ".join(
        f"{'▶' if i == decision else ''}{option} {100 * share:.1f} %"
        for i, (option, share) in enumerate(zip(verdict["options"], shares, strict=True))
    )
    score = "" if verdict["score"] is None else f", score {verdict['score']:.3g}"
    score += f" (threshold {threshold:.3g})" if score and threshold is not None else ""
    outcome = "accepted" if verdict["accepted"] else "rejected"
    yield plain(f"   verdict by {verdict['model']} ({verdict['kind']}): {outcome}{score}", style="yellow")
    yield plain(f"      {shown}  (total probability of the options {100 * verdict['mass']:.1f} %)", style="yellow")
    yield _block(verdict["question"], "      ? ", style="dim")


def _accepted_tokens(call: Row) -> str:
    if call["proposed_tokens"] is None:
        return ""
    return f", {call['accepted_tokens']} of {call['proposed_tokens']} proposed tokens accepted"


def _overlapped(call: Row) -> str:
    seconds = call["overlapped_seconds"]
    return f", {seconds:.3f} s overlapping with other calls" if seconds else ""


def _call(call: Row) -> Text:
    return plain(
        f"   call {call['call_index']}: {call['purpose']} by {call['model']}"
        + (f" × {call['n']}" if call["n"] > 1 else "")
        + f", {call['prompt_tokens']} prompt ({call['cached_tokens']} cached), {call['output_tokens']} output tokens, "
        f"queued {call['queued_seconds']:.3f}, first token {call['first_token_seconds']:.3f}, "
        f"end {call['end_seconds']:.3f} s{_overlapped(call)}, {call['in_flight']} in flight{_accepted_tokens(call)}",
        style="dim",
    )


def _block(text: str, indent: str = "   │ ", style: str = "") -> Text:
    """Return model output with every line indented, so no line can be mistaken for this program's own output."""
    return plain("\n".join(indent + line for line in text.split("\n")), style=style, keep="\n")


def _explain_missing(connection: Connection, run_id: str, problem_id: str, sample_index: int) -> str:
    from warehouse.database import rows

    sql = "SELECT problem_id FROM problem WHERE run_id = $run_id ORDER BY problem_index"
    problems = [str(row["problem_id"]) for row in rows(connection, sql, {"run_id": run_id})]
    if problem_id not in problems:
        more = f" and {len(problems) - _MOST_NAMED:,} more" if len(problems) > _MOST_NAMED else ""
        return f"no problem {problem_id} in {run_id}; available: {', '.join(problems[:_MOST_NAMED])}{more}"
    sql = "SELECT max(sample_index) AS last FROM sample WHERE run_id = $run_id AND problem_id = $problem_id"
    [row] = rows(connection, sql, {"run_id": run_id, "problem_id": problem_id})
    return f"no sample {sample_index} of {problem_id} in {run_id}; valid: 0 to {row['last']}"


@click.command(cls=WarehouseCommand)
@click.argument("run", metavar="RUN", type=RunName())
@click.argument("problem_id")
@click.argument("sample_index", type=int)
@click.option(
    "--prompt",
    "step",
    type=click.IntRange(0),
    metavar="STEP",
    help="Print only the input of each call of step STEP, reconstructed from the run folder.",
)
@database_option()
@wait_option()
def main(
    run: str, problem_id: str, sample_index: int, step: int | None, database: Path | None, wait_seconds: float
) -> None:
    """Print one sample: prompt, steps, candidates, verdicts, calls.

    RUN: a run id, a unique prefix, or a run folder. PROBLEM_ID: a problem of the dataset, e.g. demo/0. SAMPLE_INDEX:
    index of the sample, from 0.
    """
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader

    console = terminal()
    with reader(database or default_database(run), wait_seconds) as connection:
        run_id = resolve(connection, run)
        lines = list(trace_lines(connection, run_id, problem_id, sample_index))
        [(folder,)] = connection.execute("SELECT folder FROM run WHERE run_id = $id", {"id": run_id}).fetchall()
    for line in lines if step is None else _prompts(Path(folder), problem_id, sample_index, step):
        console.print(line, soft_wrap=True)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.trace")
