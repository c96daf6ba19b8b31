"""Nights: launched under their date, judged when they have ended, awaited; suspicions are confirmed by themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from junitparser import JUnitXml

from harness.engine import Sampling
from harness.engines.scripted import SimulatedModel
from jobs import after, drive, nightly
from jobs import suite as suites
from jobs.finished import grading
from jobs.nightly import Night
from jobs.recovery import NightRecord
from jobs.run.folder import run_folders
from jobs.work.worker import run_parts
from tests.jobs.runs import jobs, write_suite
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm
from warehouse.loading.runs import load_runs
from warehouse.nightly.judge import EXIT_CODES

NIGHTS = [date(2026, 1, day) for day in range(1, 9)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight nights on which nothing happened, loaded at once; the first and the last are then launched as such."""
    folder = tmp_path_factory.mktemp("nights")
    runs = ({"method": "vanilla"}, {"method": "speccot", "drafts": 2})
    path = write_suite(folder, *runs, limit=16, samples=2)
    launches = [one for night in NIGHTS for one in suites.prepare(Night.read(path, night).suite, f"{night}")]
    for one in launches:
        drive.create(one)
    run_parts([(str(one.run.path), [0]) for one in launches])
    for one in launches:
        grading.finish(one.run)
    list(load_runs([one.run for one in launches], folder / "runs" / "warehouse.duckdb"))
    for night in (NIGHTS[0], NIGHTS[7]):
        assert nightly.launch(Night.read(path, night)) is None
    return path


def verdict(suite: Path, night: date) -> str:
    return (suite.parent / "runs" / "nights" / f"{night}.md").read_text()


def test_the_first_nights_are_inconclusive_and_then_pass(suite: Path) -> None:
    for night, found in ((NIGHTS[0], "INCONCLUSIVE"), (NIGHTS[7], "PASS")):
        assert nightly.conclude(Night.read(suite, night)) == {"INCONCLUSIVE": 4, "PASS": 0}[found]
        assert verdict(suite, night).startswith(f"**{found}: night of {night}, 2 cells")


def test_a_drop_is_confirmed_by_a_second_run_and_fails_the_night(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's answers are wrong from now on, in the re-run too."""
    write = SimulatedModel.write

    def worse(self: SimulatedModel, prompt: str, sampling: Sampling) -> list[str]:
        return [text.replace("boxed{", "boxed{9") for text in write(self, prompt, sampling)]

    monkeypatch.setattr(SimulatedModel, "write", worse)
    night = date(2026, 1, 9)
    nightly.launch(Night.read(suite, night))
    before = {run.path.name for run in run_folders([suite.parent / "runs"])}
    of_no_budget = Night.read(suite, night, {"max_gpu_hours": 1e-9})
    assert nightly.conclude(of_no_budget) == EXIT_CODES["FAIL"], "what confirms is not part of the budget"
    assert verdict(suite, night).startswith("**FAIL")
    assert "confirmed by a rerun" in verdict(suite, night)
    assert "Recovered" not in verdict(suite, night), "nothing died"
    again = {run.path.name: run for run in run_folders([suite.parent / "runs"])}.keys() - before
    assert len(again) == 2, "only what was suspicious was run again"
    tags = {run.spec().tag for run in run_folders([suite.parent / "runs"]) if run.path.name in again}
    assert tags == {"2026-01-09.confirm"}


def test_nights_whose_folders_and_database_are_gone_remain_the_baseline(suite: Path) -> None:
    output = suite.parent / "runs"
    for run in run_folders([output]):
        if run.spec().tag in {str(night) for night in NIGHTS[:7]}:
            shutil.rmtree(run.path)
    (output / "warehouse.duckdb").unlink()
    nightly.conclude(Night.read(suite, NIGHTS[7]))
    assert verdict(suite, NIGHTS[7]).startswith(f"**PASS: night of {NIGHTS[7]}, 2 cells")
    (output / "warehouse.nights.jsonl").unlink()
    nightly.conclude(Night.read(suite, NIGHTS[7]))
    assert "only 0 of 7 baseline nights" in verdict(suite, NIGHTS[7])


NIGHT = date(2026, 1, 1)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_suite(tmp_path, {"method": "vanilla"}, limit=8)


@pytest.fixture
def chosen(small: Path) -> Night:
    return Night.read(small, NIGHT)


@pytest.fixture
def record(chosen: Night) -> NightRecord:
    record = chosen.record
    record.append("launched", runs={}, requests={})
    return record


def between_looks(monkeypatch: pytest.MonkeyPatch, *what: Callable[[], object]) -> None:
    steps = iter(what)
    monkeypatch.setattr("jobs.drive.sleep", lambda seconds: next(steps)())


def test_a_night_here_writes_its_verdict_as_junit_and_json_and_ends_with_the_exit_code_of_it(small: Path) -> None:
    file = small.parent / "night.xml"
    done = jobs("nightly", "--suite", small, "--date", NIGHT, "--junit", file, "--json")
    assert done.exit_code == 4, done.stderr
    [found] = JUnitXml.fromfile(str(file))
    properties = {p.name: p.value for p in found.properties()}  # type: ignore[no-untyped-call]
    assert properties["exit_code"] == "4"
    assert [case.is_skipped for case in found] == [True]
    line = json.loads(done.stdout)
    assert (line["exit_code"], line["verdict"], line["error"]) == (4, "INCONCLUSIVE", None)
    assert [cell["run_id"] for cell in line["cells"]] == [run["run_id"] for run in line["runs"]]
    assert (line["night"], line["runs"][0]["state"], line["verdict_job"]) == (str(NIGHT), "finished", None)
    assert Path(line["page"]).read_text(encoding="utf-8").startswith("**INCONCLUSIVE")


def test_waiting_ends_with_the_verdict_of_the_record(
    chosen: Night, record: NightRecord, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("7", "9"):
        record.append("verdict job", job=job)
    slurm.prints(squeue="small.2026-01-01.verdict|N/A|7|7|RUNNING|n1|None")
    between_looks(
        monkeypatch,
        lambda: slurm.answers(squeue=SQUEUE_DOWN),
        lambda: slurm.prints(squeue=""),
        lambda: slurm.prints(squeue="small.2026-01-01.confirm.verdict|N/A|9|9|PENDING||Dependency"),
        lambda: record.append("concluded", verdict="FAIL", exit_code=1, found={}),
    )
    chosen.wait()
    assert record.last("concluded") is not None


def test_a_job_of_the_same_name_of_another_suite_is_not_waited_for(
    chosen: Night, record: NightRecord, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.append("verdict job", job="7")
    slurm.prints(squeue="small.2026-01-01.verdict|N/A|8|8|RUNNING|n1|None|1234|colleague")
    between_looks(monkeypatch, *[lambda: None] * 2)
    chosen.wait()
    assert record.last("concluded") is None


def test_junit_without_anything_to_judge_is_an_error_case(chosen: Night) -> None:
    for error in (None, "nobody gave one"):
        [found] = JUnitXml.fromstring(after.junit(chosen.database, NIGHT, None, error, 2))
        assert [case.is_error for case in found] == [True]
