"""What was made by an older version is loaded, resumed, graded and compared as it was, or refused by name.

The corpus is never edited: README.md says what it is and what to do where a format changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from harness.cli import options
from harness.launch import main as launch
from harness.prompts import prompt_hash
from harness.weights import models
from harness.weights.models import ModelRef
from jobs import nightly, suite
from jobs.__main__ import main as jobs
from jobs.run import plan
from jobs.run.endings import by_shard
from jobs.run.folder import RunFolder, run_folders
from jobs.run.journal import trace_from_dict
from jobs.run.spec import RunSpec, units
from jobs.run.state import compact, read_state
from jobs.run.trace_files import read_rows
from jobs.run.wording import OtherPrompts, check_prompts
from tests.golden import corpus, digests, identities, making, measured
from tests.golden.asking import assert_same, check_refusal, done, invoke, written
from tests.requirements import skip_by_design
from warehouse.database import WarehouseOutdated, reader
from warehouse.load import main as load

CORPUS = Path(__file__).parent / "2026-11"
MANIFEST_SHA256 = "ca5f60adcda8942c3244008b895de1216dac013147b2c9c4a4aaefbfb2ca3615"
MOST_BYTES = 3_000_000
REFUSED: dict[str, str] = {
    "demo-speccot-947bf651": "was begun with other prompts",
}
"""Runs of the corpus that today's code must refuse to go on with: the name of the run folder, and words of the message.
A run that is named here has to be refused with exit code 2, by the load and by every way of going on with it."""

ANOTHER_RUN = ("demo-speccot-83b3d010",)
"""Finished runs that load and compare, while their launch is another run today: its judge is shown whole steps."""

RESULTS = corpus.read_json(CORPUS / "results.json")
INTERRUPTED = corpus.read_json(CORPUS / "interrupted.json")
NIGHTS = corpus.read_json(CORPUS / "nights.json")
FINISHED: list[str] = list(RESULTS["runs"])
DOORS = ("worker", "launch")
_OF_VERDICTS = (
    *("fallback_rate", "fallback_rate_by_setting", "fallback_by_position", "acceptance_by_position"),
    *("judge_calibration", "judge_calibration_by_position", "judge_reliability", "judge_auroc", "counted_rating"),
    *("threshold_replay", "threshold_changes", "sample_change", "draft_selection"),
)
"""Views that counted verdicts when the corpus was made and count decisions today."""
_INTERVALS = ("low_95", "high_95", "standard_error")


def still_accepted(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in REFUSED]


def run_of(part: str, name: str, to: Path) -> RunFolder:
    return corpus.restored(RunFolder(CORPUS / part / name), to)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new warehouse of the finished runs."""
    folder = tmp_path_factory.mktemp("finished")
    for run in corpus.copied(CORPUS / "finished", folder):
        if run.path.name in REFUSED:
            check_refusal(run, REFUSED[run.path.name], load, run.path)
            shutil.rmtree(run.path)
    done(load, folder)
    return folder / "warehouse.duckdb"


# 1: finished runs in a new warehouse


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_loaded_with_its_numbers(loaded: Path, name: str) -> None:
    if name in REFUSED:
        return  # the fixture has seen the refusal
    with reader(loaded) as connection:
        found = measured.of_runs(connection, [FINISHED[0], name])[name]
    assert_same(found, RESULTS["runs"][name])


@pytest.mark.parametrize("name", still_accepted(FINISHED))
def test_the_warehouse_holds_what_the_trace_files_hold(name: str) -> None:
    found = digests.in_trace_files(RunFolder(CORPUS / "finished" / name))
    assert found == {sample: [digest] for sample, digest in RESULTS["runs"][name]["traces"].items()}


# 2 and 5: the old warehouse, and a comparison


def test_an_older_warehouse_is_read_or_rebuilt_with_a_notice(tmp_path: Path) -> None:
    runs = [run for run in corpus.copied(CORPUS / "finished", tmp_path) if run.path.name not in REFUSED]
    database = corpus.unpack(CORPUS / "warehouse.duckdb.gz", tmp_path / "warehouse.duckdb")
    names, outdated = still_accepted(FINISHED), False
    try:
        with reader(database) as connection:
            assert_same(measured.of_runs(connection, names), {name: RESULTS["runs"][name] for name in names})
    except WarehouseOutdated:
        outdated = True
    said = done(load, *(run.path for run in runs), "--database", database)
    # Where only views differ, they are replaced without a notice; the tables are kept.
    assert outdated or "rebuilt" not in said
    with reader(database) as connection:
        assert_same(measured.of_runs(connection, names), {name: RESULTS["runs"][name] for name in names})


def test_views_that_count_decisions_have_the_numbers_of_the_views_that_counted_verdicts(
    loaded: Path, tmp_path: Path
) -> None:
    """The database of the corpus holds the views of its time, in which a decision was a verdict."""
    if REFUSED.keys() & set(FINISHED):
        skip_by_design("the corpus's database has runs that are refused")
    database = corpus.unpack(CORPUS / "warehouse.duckdb.gz", tmp_path / "warehouse.duckdb")
    with duckdb.connect(str(database), read_only=True) as old, reader(loaded) as new:
        for view in _OF_VERDICTS:
            columns = [name for name, *_ in old.execute(f"DESCRIBE {view}").fetchall() if name not in _INTERVALS]
            then = old.execute(f"SELECT {', '.join(columns)} FROM {view}").fetchall()
            now = new.execute(f"SELECT {', '.join(columns)} FROM {view}").fetchall()
            assert then, view
            assert sorted(map(_comparable, now)) == sorted(map(_comparable, then)), view


def _comparable(row: tuple[object, ...]) -> str:
    """A row as text, without the last digits of sums whose order is not fixed."""
    return str([f"{value:.9g}" if isinstance(value, float) else value for value in row])


def test_a_comparison_gives_the_estimates_and_differences_that_it_gave(loaded: Path) -> None:
    if REFUSED.keys() & set(FINISHED):
        skip_by_design("a run that is refused cannot be compared")
    with reader(loaded) as connection:
        assert_same(measured.of_comparison(connection, FINISHED), RESULTS["comparison"])


# 3: finished runs are graded again, and not run again


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_graded_again_with_the_same_verdicts(tmp_path: Path, name: str) -> None:
    run = run_of("finished", name, tmp_path)
    shutil.rmtree(run.grades_dir)
    if name in REFUSED:
        check_refusal(run, REFUSED[name], jobs, "finalize", run.path)
        return
    done(jobs, "finalize", run.path)
    with reader(tmp_path / "warehouse.duckdb") as connection:
        found = measured.of_runs(connection, [name])[name]
    assert found["sample_verdicts"] == RESULTS["runs"][name]["sample_verdicts"]


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = run_of("finished", name, tmp_path)
    lies_where_it_lay(run, monkeypatch)
    flags = corpus.launch_flags(CORPUS / "finished.toml")[FINISHED.index(name)]
    arguments = options.arguments({**flags, "output": str(tmp_path)})
    if name in REFUSED:
        check_refusal(run, REFUSED[name], jobs, "worker", run.path, "0")
        return
    before = written(run)
    planned = "".join(done(launch, *arguments, "--dry-run").split())
    assert (name in planned) != (name in ANOTHER_RUN), "the same command, another run folder"
    assert "0 samples ended" in done(jobs, "worker", run.path, "0")
    if name not in ANOTHER_RUN:
        done(launch, *arguments)
    invoke(jobs, "resume", run.path)  # refused: it was never at Slurm
    assert written(run) == before


def lies_where_it_lay(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the bundled models lie where they lay when the run was made, with the weights that they had then.

    Both are part of the run's id, and the pair was trained anew since.
    """
    spec, resolve = run.spec(), models.resolve
    recorded = {model.name: model for model in (spec.draft, spec.target) if model}

    def placed(name: str, revision: str | None = None) -> ModelRef:
        found = resolve(name, revision)
        return ModelRef(found.name, recorded[found.name].path, found.revision, recorded[found.name].fingerprint)

    monkeypatch.setattr(models, "resolve", placed)


# 4: interrupted runs


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_goes_on_from_its_last_accepted_steps(tmp_path: Path, name: str, door: str) -> None:
    run = run_of("interrupted", name, tmp_path)
    flags = corpus.launch_flags(CORPUS / "interrupted.toml")[INTERRUPTED[name]["launch"]]
    arguments = options.arguments({**flags, "output": str(tmp_path)})
    if name in REFUSED:
        unfinished = by_shard(run, read_state(run).endings).unfinished_shards
        assert unfinished
        for shard in unfinished:
            check_refusal(run, REFUSED[name], jobs, "worker", run.path, str(shard))
        if name in "".join(done(launch, *arguments, "--dry-run").split()):  # else it is another run by now
            check_refusal(run, REFUSED[name], launch, *arguments)
        advice = " ".join(invoke(jobs, "finalize", run.path).output.split())
        assert REFUSED[name] in advice
        assert "To resume:" not in advice
        return
    before = read_state(run)
    go_on(run, door, arguments)
    assert [found.path.name for found in run_folders([tmp_path])] == [name], "the same command, another run folder"
    assert digests.in_trace_files(run) == {sample: [digest] for sample, digest in INTERRUPTED[name]["samples"].items()}
    traces = {row["sample_id"]: trace_from_dict(row) for file in run.trace_files() for row in read_rows(file)}
    for sample, known in before.unfinished.items():
        trace = traces[sample]
        assert trace.steps[: len(known.steps)] == known.steps, "an accepted step was written again"
        assert trace.calls[: len(known.calls)] == known.calls, "a call was made again"
        assert trace.num_attempts == known.num_attempts + bool(known.steps)
    after = written(run)
    go_on(run, door, arguments)
    assert written(run) == after, "a finished run was run again"


def go_on(run: RunFolder, door: str, arguments: Sequence[str]) -> None:
    """As a task of a cluster does, or as the command typed again."""
    if door == "launch":
        done(launch, *arguments)
        return
    for shard in range(run.num_shards()):
        done(jobs, "worker", run.path, str(shard))
    compact(run)


def test_the_interrupted_runs_show_every_kind_of_interruption() -> None:
    states = {name: read_state(RunFolder(CORPUS / "interrupted" / name)) for name in INTERRUPTED}
    assert all(state.finished and state.unfinished for state in states.values())
    with_steps = {RunFolder(CORPUS / "interrupted" / name).spec().method for name, state in states.items()
                  if any(trace.steps for trace in state.unfinished.values())}  # fmt: skip
    assert with_steps == {"scot", "speccot", "specreason"}, "a sample of vanilla has one step and then ends"
    journals = [path.read_bytes() for path in CORPUS.glob("interrupted/*/journal/*.jsonl")]
    assert any(not journal.endswith(b"\n") for journal in journals), "no torn line"
    assert list(CORPUS.glob("interrupted/*/parts/*.parquet")), "no trace file beside journals"
    assert any(trace.num_attempts > 1 for state in states.values() for trace in state.unfinished.values())


# 6: nights


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a nightly with its history, and a warehouse of it."""
    folder = tmp_path_factory.mktemp("nights")
    corpus.copied(CORPUS / "nights", folder)
    shutil.copytree(CORPUS / "nights" / "nights", folder / "nights")
    done(load, folder)
    return folder


@pytest.mark.parametrize("night", NIGHTS)
def test_a_night_is_judged_as_it_was(nights: Path, night: str) -> None:
    assert_same(making.judged(nights / "warehouse.duckdb", night), NIGHTS[night])
    page = (CORPUS / "nights" / "nights" / f"{night}.md").read_text(encoding="utf-8")
    assert page.startswith(f"**{NIGHTS[night]['verdict']}: night of {night}, ")


def test_a_night_that_is_launched_again_is_not_run_again(nights: Path) -> None:
    night = making.NIGHTS[-1]
    plan = (CORPUS / "nights.toml").read_text(encoding="utf-8")
    again = nights / "nights.toml"
    again.write_text(plan.replace(str(suite.read(CORPUS / "nights.toml").output), str(nights)), encoding="utf-8")
    with making.stand_ins():
        launched = nightly.launch(again, night).runs
    listed = corpus.read_json(CORPUS / "nights" / "nights" / f"{night}.json")
    assert {str(number): run.path.name for number, run in launched.items()} == listed
    for run in launched.values():
        assert written(run) == written(RunFolder(CORPUS / "nights" / run.path.name))


# 7: identities


def test_what_is_planned_has_the_ids_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from how candidates are shown, which is part of the prompt hash of joint verdicts since they show steps."""
    monkeypatch.setattr(plan, "current_prompt_hash", lambda method, parameters, wording: prompt_hash(wording))
    with making.stand_ins() as data:
        found, stored = identities.every(data), corpus.read_json(CORPUS / "ids.json")
    assert [name for name, ids in stored.items() if found.get(name) != ids] == []


def test_only_joint_verdicts_have_another_prompt_hash() -> None:
    specs = {run.path.name: run.spec() for part in ("finished", "interrupted") for run in run_folders([CORPUS / part])}
    others = {name for name, spec in specs.items() if not is_current(spec)}
    assert others == {*REFUSED, *ANOTHER_RUN}
    assert all(specs[name].params["verdict"] == "joint" for name in others)


def is_current(spec: RunSpec) -> bool:
    with contextlib.suppress(OtherPrompts):
        check_prompts(spec)
        return True
    return False


@pytest.mark.parametrize("part", ["finished", "interrupted", "nights"])
def test_a_stored_plan_has_the_ids_that_it_had(part: str) -> None:
    for run in run_folders([CORPUS / part]):
        spec = run.spec()
        assert spec.run_id == run.path.name
        planned = {unit.sample_id: unit for unit in units(spec, run.problems())}
        assert {unit.sample_id: unit for shard in run.shards() for unit in shard} == planned


# 8: what is refused


def test_only_runs_of_the_corpus_are_listed_as_refused() -> None:
    assert REFUSED.keys() <= {*FINISHED, *INTERRUPTED}
    assert all(REFUSED.values()), "an empty message would be in every output"


def test_a_run_that_is_listed_and_not_refused_fails_its_test(tmp_path: Path) -> None:
    run = run_of("interrupted", next(iter(INTERRUPTED)), tmp_path)
    with pytest.raises(AssertionError):
        check_refusal(run, "samples ended", jobs, "worker", run.path, "0")


# 9: the corpus itself


def test_the_corpus_is_what_it_was() -> None:
    listed = (CORPUS / corpus.MANIFEST).read_text(encoding="utf-8")
    assert corpus.manifest(CORPUS) == listed
    assert hashlib.sha256(listed.encode()).hexdigest() == MANIFEST_SHA256


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES
