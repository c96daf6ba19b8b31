"""Suites: read, checked as a whole, launched under a tag."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import suite
from jobs.__main__ import main
from jobs.drive import create
from jobs.outcome import LaunchFailed
from jobs.preparation import prepare
from jobs.run import trace_files
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.jobs.runs import launch_suite

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 2
samples = 1

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = {drafts}
"""


def written(folder: Path, drafts: object = 2) -> Path:
    path = folder / "small.toml"
    path.write_text(SUITE.format(output=folder / "runs", drafts=drafts), encoding="utf-8")
    return path


def test_a_suite_runs_under_a_tag_and_another_night_is_another_run(tmp_path: Path) -> None:
    chosen = suite.read(written(tmp_path))
    planned = [[one.plan for one in suite.prepare(chosen, tag)] for tag in ("2026-01-01", "2026-01-02")]
    assert [plan.spec.tag for night in planned for plan in night] == ["2026-01-01"] * 2 + ["2026-01-02"] * 2
    first, second = ({unit.sample_id for one in night for unit in units(one.spec, one.problems)} for night in planned)
    assert first.isdisjoint(second), "other samples"
    assert planned[0][0].spec.dataset_hash == planned[1][0].spec.dataset_hash, "of the same problems"


def test_a_dry_run_writes_nothing_and_what_has_run_is_not_left(tmp_path: Path) -> None:
    file = written(tmp_path)
    words = ["suite", str(file), "--dry-run"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert not (tmp_path / "runs").exists()
    [run] = launch_suite(suite.read(file), None, only=[1])
    assert run.spec().method == "speccot"
    before = sorted((tmp_path / "runs").rglob("*"))
    [left] = [line for line in CliRunner().invoke(main, words).output.splitlines() if line.endswith("left")]
    assert sorted((tmp_path / "runs").rglob("*")) == before
    assert re.findall(r"\d+", left) == ["2", "2", "4"]
    refused = CliRunner().invoke(main, [*words[:2], "--tag", "2026-01-01b"])
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


SHARED = """
output = "{output}"
engine = "scripted"
cluster = "{cluster}"
dataset = "demo"
limit = 2
samples = 1
shards = 2

[[run]]
method = "speccot"
drafts = 2

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = {drafts}
"""


def shared_suite(folder: Path, cluster: str, drafts: int = 3) -> suite.Suite:
    path = folder / "shared.toml"
    path.write_text(SHARED.format(output=folder / "runs", cluster=cluster, drafts=drafts), encoding="utf-8")
    return suite.read(path)


def engine_starts(run: RunFolder) -> set[str]:
    attempts = [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]
    return {attempt["engines"][role]["engine_start"] for attempt in attempts for role in ("draft", "target")}


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_runs_share_engines_and_one_that_fails_is_named_after_the_others_have_run(tmp_path: Path, cluster: str) -> None:
    chosen = shared_suite(tmp_path, cluster)
    first, broken, second = (prepare(launch) for launch in chosen.launches)
    create(broken)
    trace_files.write_table(broken.run.problems_path, trace_files.PROBLEMS, [])
    with pytest.raises(LaunchFailed, match=broken.run.path.name):
        launch_suite(chosen, None)
    for run in (first.run, second.run):
        assert by_shard(run, read_endings(run)).num_unfinished == 0
        assert run.derived("grades")
    assert engine_starts(first.run) == engine_starts(second.run)
    assert len(engine_starts(first.run)) == (2 if cluster == "debug" else 4), "one pair per worker"


def sweep(folder: Path, run: str) -> suite.Suite:
    path = folder / "sweep.toml"
    path.write_text(f'engine = "scripted"\ndataset = ["demo", "gsm8k"]\n[[run]]\n{run}', encoding="utf-8")
    return suite.read(path)


def test_a_list_stands_for_one_run_of_each_value(tmp_path: Path) -> None:
    chosen = sweep(tmp_path, 'method = "specreason"\nthreshold = [3, 5]\nrow = "ours"\nslurm = ["a=1", "b=2"]')
    assert [(launch.dataset, launch.parameters["threshold"]) for launch in chosen.launches] == [
        ("demo", 3), ("demo", 5), ("gsm8k", 3), ("gsm8k", 5),
    ]  # fmt: skip
    assert chosen.rows == ("ours",) * 4
    assert {launch.slurm for launch in chosen.launches} == {("a=1", "b=2")}, "several options of sbatch, in each run"
    of_table = sweep(tmp_path, 'method = "specreason"\ndataset = "demo"\nparameters = {threshold = [3, 5]}')
    assert [launch.parameters["threshold"] for launch in of_table.launches] == [3, 5]


LATENCY = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
concurrency = 2
limit = 3
samples = 2

[[run]]
method = "vanilla"
row = "alone"

[[run]]
method = "specreason"
threshold = [3, 5]

[[run]]
method = "scot"
concurrency = 1

[latency]
limit = 2
samples = 1
"""


def test_a_table_latency_stands_for_every_run_once_more_with_one_sample_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    path.write_text(LATENCY.format(output=tmp_path / "runs"), encoding="utf-8")
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
