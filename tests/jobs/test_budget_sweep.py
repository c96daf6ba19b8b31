"""Chains of a run are cut at token budgets and answered: what is cut where, what it counts as, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from harness.engines.scripted import ByteTokenizer
from harness.launch import main as launch
from jobs.continuations import budget_sweep
from jobs.run.folder import RunFolder
from jobs.run.spec import Unit, assign_to_shards
from jobs.run.trace_files import counting_records, read_rows
from tests.jobs.runs import finished_run, jobs
from tests.own_methods import no_methods, write_method
from warehouse.database import reader, rows
from warehouse.report.budgets import POINTS
from warehouse.report.charts import Scatter
from warehouse.report.page import make_report
from warehouse.report.summary import summary

__all__ = ["no_methods"]
LAUNCH = ("--dataset", "demo", "--limit", "4", "--samples", "2", "--engine", "scripted", "--cluster", "debug")
BUDGETS = (0, 20, 60, 160)
FAILING = """
from dataclasses import dataclass
from harness.engine import RequestRefused
from harness.methods import Method

@dataclass(frozen=True)
class Failing(Method):
    @property
    def roles(self):
        return ("target",)

    async def __call__(self, chain, draft, target):
        if chain.trace.sample_index:
            raise RequestRefused("too long")
        await chain.write(target, "chain", max_tokens=512, stop=())
"""
TOKENIZERS: Any = {"draft": ByteTokenizer(), "target": ByteTokenizer()}


def launched(folder: Path, *words: str) -> RunFolder:
    run = launch([*LAUNCH, "--output", str(folder), *words], standalone_mode=False)
    assert isinstance(run, RunFolder)
    return run


def sweep(run: RunFolder, *words: str, budgets: str = "0,20,60,160") -> Result:
    return jobs("sweep-budget", run.path, "--budgets", budgets, "--cluster", "debug", *words)


def swept(run: RunFolder) -> RunFolder:
    [path] = run.path.parent.glob(f"budgets-{run.path.name}-*")
    return RunFolder(path)


@pytest.fixture(scope="module")
def vanilla(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose numbers its sweep has left as they were."""
    run = launched(tmp_path_factory.mktemp("runs"), "--method", "vanilla")
    before = summary(run.path.parent / "warehouse.duckdb", [run.path.name])
    assert sweep(run).exit_code == 0
    assert summary(run.path.parent / "warehouse.duckdb", [run.path.name]) == before
    return run


@pytest.fixture(scope="module")
def specreason(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = launched(tmp_path_factory.mktemp("runs"), "--method", "specreason")
    assert sweep(run).exit_code == 0
    return run


def samples_of(run: RunFolder) -> dict[str, Any]:
    return {row["sample_id"]: row for row in counting_records(run, ["problem_id", "stop_reason", "steps"])}


def cuts_of(run: RunFolder) -> list[dict[str, Any]]:
    [path] = swept(run).derived("budget_cuts")
    return read_rows(path)


def test_a_chain_of_one_model_is_cut_behind_its_first_tokens(vanilla: RunFolder) -> None:
    beginnings = {problem.id: problem.beginning for problem in swept(vanilla).problems()}
    samples, cuts = samples_of(vanilla), cuts_of(vanilla)
    assert len(cuts) == len(samples) * len(BUDGETS)
    for row in cuts:
        [step] = samples[row["sample_id"]]["steps"]
        if step["num_tokens"] <= row["budget"]:
            assert (row["cut_problem_id"], row["num_tokens"]) == (None, step["num_tokens"])
        else:
            expected = ByteTokenizer().decode(step["token_ids"][: row["budget"]])
            assert (beginnings[row["cut_problem_id"]], row["num_tokens"]) == (expected, row["budget"])
        assert row["is_exact"]


def test_a_chain_of_steps_is_cut_behind_the_last_whole_step_within_the_budget(specreason: RunFolder) -> None:
    beginnings = {problem.id: problem.beginning for problem in swept(specreason).problems()}
    samples = samples_of(specreason)
    for row in cuts_of(specreason):
        assert not row["is_exact"]
        if row["cut_problem_id"] is None:
            continue
        steps, text = samples[row["sample_id"]]["steps"], beginnings[row["cut_problem_id"]]
        ends = [sum(step["num_tokens"] for step in steps[:number]) for number in range(len(steps) + 1)]
        number = max(number for number, end in enumerate(ends) if end <= row["budget"])
        assert (text, row["num_tokens"]) == ("".join(step["text"] for step in steps[:number]), ends[number])


def test_a_cut_chain_is_closed_and_answered_by_the_target_where_no_step_is_an_answer(specreason: RunFolder) -> None:
    assert [role for role, model in swept(specreason).spec().models.items() if model] == ["target"]
    for sample in samples_of(swept(specreason)).values():
        roles = [step["role"] for step in sample["steps"]]
        assert roles[-2:] == ["closing", "answer"] or roles == ["thought"], "the cut chain held its answer"
        assert {step["author"] for step in sample["steps"]} == {"target"}
        assert sum(step["num_tokens"] for step in sample["steps"] if step["role"] != "answer") == 0


def test_cuts_of_one_chain_follow_each_other_in_one_shard() -> None:
    units = [Unit(f"{n}", f"runs/{n // 4}-{n % 4}", 0) for n in range(46)]
    shards = assign_to_shards(units, 3, in_order=True)
    assert sorted(len(shard) for shard in shards) == [15, 15, 16]
    numbers = [[int(u.problem_id.rpartition("/")[2].partition("-")[0]) for u in shard] for shard in shards]
    assert all(shard == sorted(shard) for shard in numbers)
    assert sum(len(set(shard)) for shard in numbers) <= len({n for shard in numbers for n in shard}) + len(numbers) - 1


def points_by_hand(run: RunFolder) -> dict[int, tuple[float, float]]:
    """Accuracy and mean tokens of the chain at each budget."""
    with reader(run.path.parent / "warehouse.duckdb") as connection:
        graded = rows(
            connection, "SELECT run_id, sample_id, problem_id, verdict = 'correct' AS is_right FROM sample_grade"
        )
    whole = {row["sample_id"]: row["is_right"] for row in graded if row["run_id"] == run.path.name}
    answered = {row["problem_id"]: row["is_right"] for row in graded if row["run_id"] == swept(run).path.name}
    by_budget = defaultdict(list)
    for row in cuts_of(run):
        is_right = whole[row["sample_id"]] if row["cut_problem_id"] is None else answered[row["cut_problem_id"]]
        by_budget[row["budget"]].append((is_right, row["num_tokens"]))
    return {
        budget: (sum(right for right, _ in found) / len(found), sum(tokens for _, tokens in found) / len(found))
        for budget, found in by_budget.items()
    }


def test_a_chain_that_had_ended_counts_as_it_is_and_a_cut_one_by_its_answer(
    vanilla: RunFolder, specreason: RunFolder
) -> None:
    for run in (vanilla, specreason):
        with reader(run.path.parent / "warehouse.duckdb") as connection:
            found = rows(connection, POINTS, {"run_id": swept(run).path.name})
        measured = [(one["budget"], one["pass_at_1"], one["chain_tokens"]) for one in found]
        by_hand = [(budget, *point) for budget, point in sorted(points_by_hand(run).items())]
        assert measured == [pytest.approx(point) for point in by_hand]
        assert all(one["is_exact"] == (run == vanilla) for one in found)
        assert found[-1]["num_cut"] < found[0]["num_cut"] == found[0]["num_samples"]


def test_the_report_draws_a_line_for_each_sweep_of_a_runs_chains(specreason: RunFolder, tmp_path: Path) -> None:
    report = make_report([str(specreason.path)], specreason.path.parent / "warehouse.duckdb")
    chart = report.charts["budgets"]
    assert isinstance(chart, Scatter)
    found = [(point.x.estimate, point.y.estimate) for point in chart.points if point.y]
    expected = [(budget, 100 * accuracy) for budget, (accuracy, _) in sorted(points_by_hand(specreason).items())]
    assert found == [pytest.approx(point) for point in expected]
    assert [(curve.label, list(curve.points)) for curve in chart.curves] == [
        ("specreason, not re-planned", [0, 1, 2, 3])
    ]


def test_a_cut_chain_is_what_a_run_with_that_budget_writes_and_answers(vanilla: RunFolder, tmp_path: Path) -> None:
    short = launched(tmp_path, "--method", "vanilla", "--token-budget", "60")
    sweep(short, budgets="60")
    whole, at_60 = ({(one.beginning, one.text) for one in swept(run).problems()} for run in (vanilla, short))
    assert at_60 <= whole
    assert points_by_hand(vanilla)[60] == points_by_hand(short)[60]


def test_budgets_that_cut_nothing_and_chains_that_were_chosen_whole_are_refused_in_one_line(
    vanilla: RunFolder, tmp_path: Path
) -> None:
    chosen = finished_run(tmp_path, method="scot", samples=1)
    for refused in (*(sweep(vanilla, budgets=asked) for asked in ("9000", "8000", "20,x")), sweep(chosen)):
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_a_chain_that_ended_for_lack_of_budget_is_cut_at_that_budget_too() -> None:
    step = {"role": "draft", "num_tokens": 20, "text": "x", "author": "draft", "finish": "stop", "token_ids": []}
    begun = {**step, "role": "answer", "finish": "length", "text": "The ans"}
    sample: Any = {"steps": [step, step, begun], "stop_reason": "budget"}
    made = budget_sweep.cut(sample, 60, TOKENIZERS)
    assert (made.text, made.num_tokens) == ("xx", 40), "an answer that was begun is asked for anew"
    for reason in ("answered", "error"):
        assert budget_sweep.cut(sample | {"stop_reason": reason}, 60, TOKENIZERS).text is None


def test_samples_that_failed_keep_their_verdict_at_every_budget(tmp_path: Path, no_methods: None) -> None:
    method = write_method(tmp_path, FAILING)
    run = launched(tmp_path / "runs", "--method", f"{method}:Failing")
    assert sweep(run, "--trust", budgets="20,60").exit_code == 0
    whole = summary(run.path.parent / "warehouse.duckdb", [run.path.name])[0]
    assert whole.verdicts["error"] > 0
    with reader(run.path.parent / "warehouse.duckdb") as connection:
        sql = "SELECT budget, count(*) FILTER (verdict = 'error') AS n FROM budget_point GROUP BY ALL"
        found = rows(connection, sql)
    assert {row["budget"]: row["n"] for row in found} == dict.fromkeys((20, 60), whole.verdicts["error"])


def test_damaged_cuts_are_written_again_and_of_a_sweep_there_is_none(vanilla: RunFolder) -> None:
    [path] = swept(vanilla).derived("budget_cuts")
    before = read_rows(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert jobs("show", swept(vanilla).path).exit_code in (0, 1)
    assert sweep(vanilla).exit_code == 0
    assert read_rows(path) == before
    assert sweep(swept(vanilla)).exit_code == 2
