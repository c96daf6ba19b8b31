"""A look that dies on a cluster, before it decides or after: no wave is drawn twice, and no look is made twice."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.after.grading import finished_samples
from jobs.nights.record import NightRecord
from jobs.run import waves
from jobs.run.files import read_records
from jobs.run.folder import RunFolder, run_folders
from tests.slurm.conftest import harness, slurm_output, wait_for
from tests.slurm.test_waves import ALL_EQUAL_AT_LOOK_2

pytestmark = pytest.mark.slurm
BEFORE_THE_DECISION, BEFORE_THE_SUBMISSION = "squeue", "sbatch"
"""What a look calls first at these places: it asks for its successor, and it submits the next wave."""
KILL = "kill -9 $PPID; exit 1"
CANCEL = "scancel --state=PENDING; scancel --state=RUNNING; kill -9 $PPID; exit 1"
WRAPPER = """#!/bin/sh
for last; do :; done
if {condition} && mkdir "{once}" 2>/dev/null; then {deed}; fi
exec {program} "$@"
"""
CONDITIONS = {
    BEFORE_THE_DECISION: '[ "${SLURM_JOB_NAME%.look}" != "$SLURM_JOB_NAME" ]',
    # A job calls sbatch without its variables. Only looks submit anything that is no look itself.
    BEFORE_THE_SUBMISSION: "grep -q submitit /proc/$PPID/cmdline && ! grep -q 'job-name=.*[.]look' \"$last\"",
}


class Comparison:
    """A launch until decided, whose looks die once at each place."""

    def __init__(self, folder: Path, deed: str) -> None:
        self.folder, self.output = folder, folder / "runs"
        commands = folder / "commands"
        commands.mkdir()
        for program, condition in CONDITIONS.items():
            text = WRAPPER.format(
                condition=condition, once=self.death(program), deed=deed, program=shutil.which(program)
            )
            (commands / program).write_text(text, encoding="utf-8")
            (commands / program).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}

    def death(self, program: str) -> Path:
        """Return what exists once a look has died at this place."""
        return self.folder / f"died-at-{program}"

    def launch(self) -> str:
        arguments = ["--method", "speccot", "--drafts", "2", "--engine", "scripted", "--cluster", "slurm"]
        arguments += ["--dataset", "demo", "--limit", "6", "--samples", "4", "--mem", "1G"]
        arguments += ["--output", str(self.output), "--until-decided", "--margin", ALL_EQUAL_AT_LOOK_2]
        return harness("harness.launch", *arguments, environment=self.environment)

    @property
    def runs(self) -> list[RunFolder]:
        return run_folders([self.output])

    @property
    def record(self) -> NightRecord:
        [path] = (self.output / "waves").glob("*.jsonl")
        return NightRecord(path)

    def looks(self) -> dict[str, list[int]]:
        """Return the numbers of the looks that are recorded, with repetitions, by method."""
        found: dict[str, list[int]] = {}
        for run in self.runs:
            records: list[dict[str, Any]] = list(read_records(run.path / "waves.jsonl", run.spec_id()))
            found[run.spec().method] = [record["look"] for record in records if "look" in record]
        return found

    def assert_drawn_and_looked_at_once(self) -> None:
        """Assert that it ended as one of which nothing died: two waves, two looks, every sample once."""
        assert self.looks() == {"vanilla": [1, 2], "speccot": [1, 2]}
        for run in self.runs:
            begun = waves.read(run)
            assert begun is not None
            assert (begun.is_stopped, begun.wave, run.num_planned()) == (True, 2, 12)
            samples = Counter(sample["sample_id"] for sample in finished_samples(run))
            assert samples == Counter(unit.sample_id for shard in run.shards() for unit in shard)
        [page] = self.output.glob("*.html")
        assert page.stem == self.record.path.stem


def test_looks_that_are_killed_are_made_again_unattended(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, KILL)
    assert "The comparison is looked at by job" in comparison.launch()
    wait_for(lambda: comparison.record.is_concluded, "the last look", 180)
    assert all(map(Path.exists, map(comparison.death, CONDITIONS)))
    comparison.assert_drawn_and_looked_at_once()
    wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")


def test_looks_whose_jobs_are_all_canceled_are_made_by_the_next_launch(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, CANCEL)
    for program, looks in ((BEFORE_THE_DECISION, []), (BEFORE_THE_SUBMISSION, [1])):
        comparison.launch()
        wait_for(comparison.death(program).exists, f"a look that calls {program}", 120)
        wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")
        assert comparison.looks() == {"vanilla": looks, "speccot": looks}
    comparison.launch()
    wait_for(lambda: comparison.record.is_concluded, "the last look", 120)
    comparison.assert_drawn_and_looked_at_once()
