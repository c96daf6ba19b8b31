"""Suites: read, checked as a whole, launched under a tag and within a budget of GPU-hours; some are bundled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.problems import benchmarks
from jobs import after, suite
from jobs.cli.launches import EXAMPLES, SUITES, suite_file
from jobs.drive import create
from jobs.forecast import Forecast
from jobs.outcome import LaunchFailed
from jobs.preparation import prepare
from jobs.run import trace_files
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.harness.problems.stand_ins import write_stand_ins
from tests.jobs.runs import attempts, jobs, launch_suite, launched, write_suite

VANILLA, SPECCOT = {"method": "vanilla"}, {"method": "speccot", "drafts": 2}


def test_a_suite_runs_under_a_tag_and_another_night_is_another_run(tmp_path: Path) -> None:
    chosen = suite.read(write_suite(tmp_path, VANILLA, SPECCOT, limit=2, samples=1))
    planned = [[one.plan for one in suite.prepare(chosen, tag)] for tag in ("2026-01-01", "2026-01-02")]
    assert [plan.spec.tag for night in planned for plan in night] == ["2026-01-01"] * 2 + ["2026-01-02"] * 2
    first, second = ({unit.sample_id for one in night for unit in units(one.spec, one.problems)} for night in planned)
    assert first.isdisjoint(second), "other samples"
    assert planned[0][0].spec.dataset_hash == planned[1][0].spec.dataset_hash, "of the same problems"


def test_a_dry_run_writes_nothing_and_what_has_run_is_not_left(tmp_path: Path) -> None:
    file = write_suite(tmp_path, VANILLA, SPECCOT, limit=2, samples=1)
    words = ["suite", file, "--dry-run"]
    assert jobs(*words).exit_code == 0
    assert not (tmp_path / "runs").exists()
    [run] = launch_suite(suite.read(file), None, only=[1])
    assert run.spec().method == "speccot"
    before = sorted((tmp_path / "runs").rglob("*"))
    [left] = [line for line in jobs(*words).output.splitlines() if line.endswith("left")]
    assert sorted((tmp_path / "runs").rglob("*")) == before
    assert re.findall(r"\d+", left) == ["2", "2", "4"]
    refused = jobs(*words[:2], "--tag", "2026-01-01b")
    assert (refused.exit_code, f"nightly --suite {file} --date 2026-01-01" in refused.stderr) == (2, True)


RUN = "[[run]]\nmethod = 'vanilla'\ndataset = 'demo'\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("output = 3 4", "TOML"),
        ("run = 3", "[[run]]"),
        (f"tag = 'x'\n{RUN}", "tag"),
        (f"{RUN}dry_run = true", "dry-run"),
        (f"{RUN}output = 'x'", "output"),
        (f"latency = 3\n{RUN}", "[latency]"),
        (f"{RUN}[latency]\nconcurrency = 4", "[latency]"),
        (f"{RUN}[latency]\noutput = 'x'", "output"),
        (f"{RUN}[latency]\nlimit = 0", "[latency], run 1: "),
        (f"[nightly]\nretries = 3\n{RUN}", "[nightly]"),
        (f"{RUN}{RUN}drafts = 0", "run 2: "),
        (f"{RUN}threshold = []", "run 1: threshold: "),
        (f"{RUN}row = 3", "run 1: row: "),
        (f"{RUN}[probe]\npoints = 1", "[probe]: points: "),
        (f"{RUN}[probe]\nruns = 3", "'runs'"),
    ],
)
def test_a_wrong_suite_is_refused_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(suite.BadSuite) as refused:
        suite.read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert named in str(refused.value)
    assert "\n" not in str(refused.value).strip()


def engine_starts(run: RunFolder) -> set[str]:
    return {attempt["engines"][role]["engine_start"] for attempt in attempts(run) for role in ("draft", "target")}


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_runs_share_engines_and_one_that_fails_is_named_after_the_others_have_run(tmp_path: Path, cluster: str) -> None:
    runs = (SPECCOT, VANILLA, {"method": "speccot", "drafts": 3})
    chosen = suite.read(write_suite(tmp_path, *runs, cluster=cluster, limit=2, samples=1, shards=2))
    first, broken, second = (prepare(launch) for launch in chosen.launches)
    create(broken)
    trace_files.write_table(broken.run.problems_path, trace_files.PROBLEMS, [])
    with pytest.raises(LaunchFailed, match=broken.run.path.name):
        launch_suite(chosen, None)
    for run in (first.run, second.run):
        assert num_unfinished(run) == 0
        assert run.derived("grades")
    assert engine_starts(first.run) == engine_starts(second.run)
    assert len(engine_starts(first.run)) == (2 if cluster == "debug" else 4), "one pair per worker"


def test_a_list_stands_for_one_run_of_each_value(tmp_path: Path) -> None:
    one = {"method": "specreason", "threshold": [3, 5], "row": "ours", "slurm": ["a=1", "b=2"]}
    chosen = suite.read(write_suite(tmp_path, one, dataset=["demo", "gsm8k"]))
    assert [(launch.dataset, launch.parameters["threshold"]) for launch in chosen.launches] == [
        ("demo", 3), ("demo", 5), ("gsm8k", 3), ("gsm8k", 5),
    ]  # fmt: skip
    assert chosen.rows == ("ours",) * 4
    assert {launch.slurm for launch in chosen.launches} == {("a=1", "b=2")}, "several options of sbatch, in each run"
    of_table = suite.read(write_suite(tmp_path, {"method": "specreason", "parameters.threshold": [3, 5]}))
    assert [launch.parameters["threshold"] for launch in of_table.launches] == [3, 5]


def test_a_table_latency_stands_for_every_run_once_more_with_one_sample_in_flight(tmp_path: Path) -> None:
    runs = (
        {**VANILLA, "row": "alone"},
        {"method": "specreason", "threshold": [3, 5]},
        {"method": "scot", "concurrency": 1},
    )
    latency = "[latency]\nlimit = 2\nsamples = 1\n"
    path = write_suite(tmp_path, *runs, concurrency=2, limit=3, samples=2, tables=latency)
    chosen = suite.read(path)
    planned = [(run.method, run.parameters.get("threshold"), run.concurrency, run.limit) for run in chosen.launches]
    many = [("vanilla", None, 2, 3), ("specreason", 3, 2, 3), ("specreason", 5, 2, 3), ("scot", None, 1, 3)]
    one = [("vanilla", None, 1, 2), ("specreason", 3, 1, 2), ("specreason", 5, 1, 2)]
    assert planned == many + one, "a run with one sample in flight is not run twice"
    assert {run.samples for run in chosen.launches[len(many) :]} == {1}
    assert chosen.rows == ("alone", None, None, None, "alone", None, None)
    changed = suite.read(path, overrides={"concurrency": 8, "samples": 3})
    assert [run.concurrency for run in changed.launches] == [8] * 4 + [1] * 4
    assert {run.samples for run in changed.launches} == {3}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate of 8 GPU-hours for every run."""
    forecast = Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100")
    monkeypatch.setattr(after, "forecast", lambda *_: forecast)


@pytest.mark.usefixtures("known")
def test_what_is_left_by_history_is_refused_above_the_budget(tmp_path: Path) -> None:
    for further in ([], ["--dry-run"]):
        refused = launched(tmp_path / "runs", "--max-gpu-hours", "7.9", *further)
        assert refused.exit_code == 2
        assert {"7.9", "8.0", "(history:"} < set(refused.stderr.split())
    assert "estimate: 8.0" in refused.stdout, "a dry run shows what it is that is refused"
    assert not (tmp_path / "runs").exists()


def test_without_an_estimate_a_launch_is_refused(tmp_path: Path) -> None:
    refused = launched(tmp_path / "runs", "--max-gpu-hours", "8")
    assert (refused.exit_code, "demo-speccot" in refused.stderr) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hours", ["-1", "nan", "many"])
def test_a_wrong_budget_is_refused(tmp_path: Path, hours: str) -> None:
    refused = launched(tmp_path / "runs", "--max-gpu-hours", hours)
    assert (refused.exit_code, "--max-gpu-hours" in refused.stderr) == (2, True)
    with pytest.raises(suite.BadSuite, match="max-gpu-hours"):
        suite.read(write_suite(tmp_path, VANILLA, **{"max-gpu-hours": hours}))


@pytest.mark.usefixtures("known")
def test_a_dry_run_of_a_suite_adds_up_what_is_left(tmp_path: Path) -> None:
    words = ["suite", write_suite(tmp_path, VANILLA, SPECCOT, limit=4, samples=3), "--dry-run"]
    shown = jobs(*words)
    assert (shown.exit_code, shown.output.count("estimate: ")) == (0, 2)
    assert "Total: 16.0" in shown.output
    refused = jobs(*words, "--max-gpu-hours", "15.9")
    assert (refused.exit_code, "15.9" in refused.stderr, "16.0" in refused.stderr) == (2, True, True)
    assert not (tmp_path / "runs").exists()


def test_a_bundled_suite_is_named_and_a_file_of_its_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert suite_file(Path("demo")) == SUITES["demo"]
    assert suite_file(Path("other.toml")) == Path("other.toml")
    for words, valid in ((["suite", "other"], SUITES), (["example", "cluster"], EXAMPLES)):
        result = jobs(*words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert all(name in result.stderr for name in valid)
    Path("demo").touch()
    assert suite_file(Path("demo")) == Path("demo")


@pytest.mark.parametrize("name", SUITES)
def test_a_bundled_suite_is_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    write_stand_ins(tmp_path / "data")
    monkeypatch.setenv(benchmarks.DATA_DIR_VARIABLE, str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    runs = [prepared.run.path for prepared in suite.prepare(suite.read(SUITES[name]), None)]
    assert len(set(runs)) == len(runs) >= 2
    assert not list((tmp_path / "here").iterdir())
