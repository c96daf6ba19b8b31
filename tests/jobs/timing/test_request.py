"""`--latency-sample`: refused in one line where it makes no sense, no part of the run's identity, resumable."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.launch import main
from harness.problems import benchmarks
from harness.weights import models
from jobs.__main__ import main as jobs
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec
from jobs.timing import folder, request

COMMON = ("--method", "speccot", "--dataset", "demo", "--limit", "4", "--samples", "2", "--engine", "scripted")
SMALL = (*COMMON, "--cluster", "debug", "--token-budget", "600")


def launch(output: Path, *arguments: str) -> RunFolder:
    run = main([*SMALL, *arguments, "--output", str(output)], standalone_mode=False)
    assert isinstance(run, RunFolder)
    return run


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--latency-sample", "9"), "--latency-sample 9: the run has 8 samples; valid: 1 to that many"),
        (("--latency-sample", "0"), "0 is not a whole number of 1 or more"),
        (("--latency-sample", "4", "--concurrency", "1"), "every sample runs alone already"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [*SMALL, *arguments, "--output", str(tmp_path / "runs")])
    assert done.exit_code == 2, done.output
    assert why in done.output
    assert not (tmp_path / "runs").exists()


def test_it_is_no_part_of_the_run_and_times_one_that_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = launch(tmp_path)
    spec = before.spec_path.read_bytes()
    capsys.readouterr()
    run = launch(tmp_path, "--latency-sample", "4")
    assert run.path == before.path
    assert run.spec_path.read_bytes() == spec
    assert "All 8 samples are already finished; 4 samples are still to be timed" in capsys.readouterr().out
    assert folder.progress(run) == folder.Progress(4, 4)
    launch(tmp_path, "--latency-sample", "4")
    assert folder.progress(run) == folder.Progress(4, 4)


def test_another_number_after_the_draw_is_refused(tmp_path: Path) -> None:
    launch(tmp_path, "--latency-sample", "4")
    done = CliRunner().invoke(main, [*SMALL, "--latency-sample", "5", "--output", str(tmp_path)])
    assert done.exit_code == 2, done.output
    assert "has drawn 4 samples to time; valid: 4" in done.output


def test_status_says_how_far_the_timing_is(tmp_path: Path) -> None:
    run = launch(tmp_path)
    folder.request(run, 4)
    assert "timing, one at a time: 0 of 4 samples" in CliRunner().invoke(jobs, ["status", str(run.path)]).output
    launch(tmp_path, "--latency-sample", "4")
    assert "timing, one at a time: 4 of 4 samples" in CliRunner().invoke(jobs, ["status", str(run.path)]).output


@pytest.mark.parametrize(
    ("arguments", "is_told"),
    [
        ((), True),
        (("--take-turns",), False),
        (("--concurrency", "2"), False),
        (("--method", "vanilla"), True),
        (("--engine", "transformers"), False),
    ],
)
def test_a_timing_with_divided_cores_is_warned_of(
    arguments: tuple[str, ...], is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(request, "accelerator", lambda: "cpu")
    run = (*COMMON, "--engine", "vllm", "--cluster", "local", "--latency-sample", "4", "--dry-run", *arguments)
    done = CliRunner().invoke(main, [*run, "--output", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert ("--latency-sample 4: on a CPU the samples are timed on the cores" in told) == is_told


def test_models_that_have_the_same_cores_with_one_sample_in_flight_are_not_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "accelerator", lambda: "cpu")
    spec, problems = launch(tmp_path).spec(), benchmarks.load("demo")
    toys = {
        role: ModelSpec(found.name, found.path_or_hub_id, found.revision, found.identity)
        for role, found in (("draft", models.resolve("demo-draft")), ("target", models.resolve("demo-target")))
    }
    spec = replace(spec, engine=EngineSpec("vllm"), draft=toys["draft"], target=toys["target"])
    for num_cores, is_told in ((2, False), (8, True)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, num=num_cores: set(range(num)))
        assert (request.split_cores_notice(4, spec, problems) is not None) == is_told


def test_cores_are_not_divided_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    spec, problems = replace(launch(tmp_path).spec(), engine=EngineSpec("vllm")), benchmarks.load("demo")
    for device, is_told in (("cpu", True), ("gpu", False)):
        monkeypatch.setattr(request, "accelerator", lambda device=device: device)
        assert (request.split_cores_notice(4, spec, problems) is not None) == is_told
