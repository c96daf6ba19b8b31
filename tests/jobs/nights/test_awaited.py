"""`jobs nightly --wait` and `--junit`: the verdict as an exit code and as a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from junitparser import JUnitXml

from jobs import after
from jobs.__main__ import main
from jobs.nightly import Night
from jobs.recovery import NightRecord
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm

NIGHT = date(2026, 1, 1)
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 8

[[run]]
method = "vanilla"
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    return path


@pytest.fixture
def chosen(small: Path) -> Night:
    return Night.read(small, NIGHT)


@pytest.fixture
def record(chosen: Night) -> NightRecord:
    record = chosen.record
    record.append("launched", runs={}, requests={})
    return record


def nightly(small: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["nightly", "--suite", str(small), "--date", str(NIGHT), *arguments])


def between_looks(monkeypatch: pytest.MonkeyPatch, *what: Callable[[], object]) -> None:
    steps = iter(what)
    monkeypatch.setattr("jobs.drive.sleep", lambda seconds: next(steps)())


def test_a_night_here_writes_its_verdict_as_junit_and_json_and_ends_with_the_exit_code_of_it(small: Path) -> None:
    file = small.parent / "night.xml"
    done = nightly(small, "--junit", str(file), "--json")
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
