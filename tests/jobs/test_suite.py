"""Suites: read, checked as a whole, launched under a tag."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from harness.problems import benchmarks
from jobs import suite
from jobs.cli.launches import SUITES
from jobs.drive import create
from jobs.outcome import LaunchFailed
from jobs.preparation import prepare
from jobs.run import timing as timings
from jobs.run import trace_files
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
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
    nights = [launch_suite(chosen, tag) for tag in ("2026-01-01", "2026-01-02")]
    assert [run.spec().tag for night in nights for run in night] == ["2026-01-01"] * 2 + ["2026-01-02"] * 2
    for run in (run for night in nights for run in night):
        assert by_shard(run, read_endings(run)).num_unfinished == 0
    first, second = ({unit.sample_id for run in night for unit in run.shards()[0]} for night in nights)
    assert first.isdisjoint(second), "other samples"
    assert nights[0][0].spec().dataset_hash == nights[1][0].spec().dataset_hash, "of the same problems"
    assert [run.path for run in launch_suite(chosen, "2026-01-02")] == [run.path for run in nights[1]]


def test_the_runs_of_a_file_are_launched_compared_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs.__main__ import main

    main.main(["suite", str(written(tmp_path))])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("[")]
    assert [line.split()[:2] for line in lines] == [["[1/2]", "vanilla"], ["[2/2]", "speccot"]]
    assert "fallback" in lines[1]
    for once in ("Next:", "LIMITED RUN", "small.html"):
        assert printed.count(once) == 1, once
    assert "run folder" not in printed, "a dry run has the plans"
    page = tmp_path / "runs" / "small.html"
    assert "speccot" in page.read_text(encoding="utf-8")


def test_a_dry_run_says_what_is_left_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from jobs.__main__ import main

    file = written(tmp_path)
    main.main(["suite", str(file), "--dry-run"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "run folder" in printed
    assert not (tmp_path / "runs").exists()
    launch_suite(suite.read(file), None, only=[0])
    before = sorted((tmp_path / "runs").rglob("*"))
    capsys.readouterr()
    main.main(["suite", str(file), "--dry-run"], standalone_mode=False)
    assert sorted((tmp_path / "runs").rglob("*")) == before
    [left] = [line for line in capsys.readouterr().out.splitlines() if line.endswith("left")]
    assert left.startswith("2 runs: ")
    assert left.split()[2] != "0"


def test_a_latency_sample_of_a_suite_is_planned_timed_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    launch_suite(suite.read(file), None)  # as if every worker had been killed before it timed a sample
    file.write_text(file.read_text().replace("samples = 1", "samples = 1\nlatency-sample = 2"))
    chosen = suite.read(file)

    def preview() -> list[str]:
        capsys.readouterr()
        suite.preview(suite.prepare(chosen, None), Console(width=200, highlight=False))
        return [line.strip() for line in capsys.readouterr().out.splitlines()]

    assert preview()[-1] == "2 runs: 0 of 4 samples left, 4 samples to be timed alone"
    runs = launch_suite(chosen, None)
    assert [timings.progress(run) for run in runs] == [timings.Progress(2, 2)] * 2
    assert preview()[-1] == "2 runs: 0 of 4 samples left"
    [journal, *_] = timings.TimingFolder(runs[0].path).trace_files()
    journal.unlink()  # what was timed is lost, and is timed again
    assert preview()[-1] == "2 runs: 0 of 4 samples left, 2 samples to be timed alone"
    launch_suite(chosen, None)
    assert timings.progress(runs[0]) == timings.Progress(2, 2)


def test_some_of_a_suite(tmp_path: Path) -> None:
    [run] = launch_suite(suite.read(written(tmp_path)), "x", [1])
    assert run.spec().method == "speccot"


def test_nothing_is_launched_where_one_run_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(suite.BadSuite, match="run 2: --drafts must be from 1 to 25, not 0"):
        suite.read(written(tmp_path, drafts=0))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output = 3 4", "not a readable TOML file"),
        ("output = 'runs'", "no runs; add at least one"),
        ("run = 3", "no runs; add at least one"),
        ("tag = 'x'\n[[run]]\nmethod = 'vanilla'", "not allowed in a suite: tag"),
        ("[[run]]\ndry_run = true", "not allowed in a suite: dry-run"),
        ("[[run]]\noutput = 'x'", "set output once at the top: all runs share"),
        ("latency = 3\n[[run]]\nmethod = 'vanilla'", r"\[latency\]: expected a table"),
        ("[[run]]\nmethod = 'vanilla'\n[latency]\nconcurrency = 4", r"\[latency\]: expected a table"),
        ("[[run]]\nmethod = 'vanilla'\n[latency]\noutput = 'x'", "set output once at the top: all runs share"),
        ("[[run]]\nmethod = 'vanilla'\n[latency]\ntag = 'x'", "not allowed in a suite: tag"),
        ("[[run]]\nmethod = 'vanilla'\ndataset = 'demo'\n[latency]\nlimit = 0", r"\[latency\], run 1: "),
    ],
)
def test_a_wrong_suite_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(suite.BadSuite, match=message) as refused:
        suite.read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value).strip()


def test_wrong_settings_of_a_night_are_refused_as_those_of_a_launch_are(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[nightly]\nretries = 3\n[[run]]\nmethod = 'vanilla'", encoding="utf-8")
    with pytest.raises(suite.BadSuite, match=r"wrong\.toml: \[nightly\]: unknown key 'retries'; valid: recoveries"):
        suite.read(path)


def test_the_tag_of_a_night_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from jobs.__main__ import main

    path = written(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main.main(["suite", str(path), "--tag", "2026-01-01b"])
    assert ended.value.code == 2
    assert f"python -m jobs nightly --suite {path} --date 2026-01-01" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_missing_suite_is_named_as_it_was_typed(tmp_path: Path) -> None:
    with pytest.raises(suite.BadSuite) as refused:
        suite.read(tmp_path / "nowhere.toml")
    assert str(refused.value) == f"{tmp_path / 'nowhere.toml'}: no such file"


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
def test_runs_share_engines_and_one_that_fails_is_named_after_the_others_have_run(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
    printed = capsys.readouterr().out
    assert sum(line.startswith("[") and " % " in f"{line} " for line in printed.splitlines()) >= 2, (
        "both have their line"
    )


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


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ('method = "specreason"\nthreshold = []', "run 1: threshold: an empty list"),
        ('method = "specreason"\nthreshold = [3, "x"]', "run 1: --threshold"),
        ('method = "specreason"\nrow = 3', "run 1: row: expected the name"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(tmp_path: Path, run: str, message: str) -> None:
    with pytest.raises(suite.BadSuite, match=message) as refused:
        sweep(tmp_path, run)
    assert "\n" not in str(refused.value)


def test_flags_on_top_of_a_suite_reach_the_runs_whose_method_has_them(tmp_path: Path) -> None:
    chosen = suite.read(written(tmp_path), overrides={"drafts": 4, "limit": 1, "output": str(tmp_path / "other")})
    assert [launch.parameters.get("drafts") for launch in chosen.launches] == [None, 4]
    assert {launch.limit for launch in chosen.launches} == {1}
    assert chosen.output == tmp_path / "other"


def test_the_demo_plans_what_the_readme_shows() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    launches = suite.read(SUITES["demo"]).launches
    assert {(run.concurrency, run.limit, run.samples) for run in launches} == {(1, 24, 1)}
    assert "over 24 problems × 1" in readme
    for run in launches:
        label = f"vanilla {run.parameters['model']}" if run.method == "vanilla" else run.method
        assert f"\n{label} " in readme


def test_the_full_demo_fills_its_batch() -> None:
    chosen = suite.read(SUITES["demo-full"]).launches
    many, one = ([run for run in chosen if (run.concurrency > 1) == is_many] for is_many in (True, False))
    assert [(run.method, run.parameters) for run in one] == [(run.method, run.parameters) for run in many]
    assert {(run.limit, run.samples) for run in one} == {(12, 1)}
    [in_flight], [samples] = {run.concurrency for run in many}, {run.samples for run in many}
    assert samples * len(benchmarks.load("demo")) == in_flight


def test_gpus_of_a_run_or_of_the_command_line_replace_those_of_the_suite(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(f'gpus-per-node = 2\n{path.read_text()}gres = "gpu:l40s:4"\n')
    assert [dict(launch.sbatch) for launch in suite.read(path).launches] == [
        {"gpus-per-node": "2"},
        {"gres": "gpu:l40s:4"},
    ]
    typed = suite.read(path, overrides={"gres": "gpu:h100:1"}).launches
    assert [dict(launch.sbatch) for launch in typed] == [{"gres": "gpu:h100:1"}] * 2
