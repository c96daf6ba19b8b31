"""Checks of what a run needs of Slurm: commands, a controller that answers, accounting, and valid sbatch options."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.checks.finding import Check, Question, failure, ok, warning
from harness.sizing.memory import Option
from jobs.slurm import client, profiles

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
"""Commands without which nothing can be submitted or watched; runs can do without sacct."""
_SECONDS = 15.0


def check_slurm(question: Question) -> Iterator[Check]:
    """Check Slurm from this machine, a login node or a node.

    Every call has a time limit, because clients without client.conf hang for a minute.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing and client.REQUEUE_CODE in os.environ:
        text = f"no {', '.join(missing)} in the container; the batch script requeues its job at the time limit"
        yield ok("slurm", f"{text}. A night's verdict submits jobs and needs them: [nightly.slurm] python = …")
        return
    if missing:
        if question.cluster == "slurm":
            yield failure("slurm", f"{', '.join(missing)} not found: load the site's Slurm module or log in elsewhere")
        else:
            yield ok("slurm", f"none here; runs go to --cluster {question.cluster}")
        return
    try:
        if "UP" not in client.ping(_SECONDS):
            raise client.SlurmError("scontrol ping: DOWN")
    except client.SlurmError as error:
        is_needed = question.cluster == "slurm"
        configuration = os.environ.get("SLURM_CONF", "the site's client.conf")
        text = f"no controller answers ({error}): see {configuration}, or sinfo"
        yield failure("slurm", text) if is_needed else ok("slurm", f"{text}; runs go to --cluster {question.cluster}")
        return
    yield ok("slurm", "the controller answers")
    yield _accounting()
    if not question.on_node and question.cluster == "slurm":
        yield _options(dict(question.sbatch))


def _accounting() -> Check:
    try:
        client.ask("sacct", "-n", "-X", "-P", "-S", "now-1minutes", "-o", "JobID", seconds=_SECONDS)
    except client.SlurmError as error:
        return warning(
            "slurm accounting", f"{error}; runs work without it, but status has no GPU-hours and not why tasks ended"
        )
    return ok("slurm accounting", "sacct answers")


def _options(options: Mapping[str, Option]) -> Check:
    """Check whether sbatch would accept a job with these options; nothing is submitted."""
    parameters = profiles.submitit_parameters(options)
    passed = {"time": parameters["time"], **parameters["additional_parameters"]}
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in passed.items()]
    command = ["sbatch", "--test-only", *flags, "--wrap=true"]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment, cwd=Path("/")
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failure("sbatch", f"does not answer: {error}")
    reply = " ".join((completed.stderr or completed.stdout).replace("sbatch: ", "").split())
    if completed.returncode != 0:
        return failure(
            "sbatch", f"would reject the job: {reply}; see --partition, --account, --qos, --gpus-per-node, --time"
        )
    return ok("sbatch", f"would accept the job: {reply.removeprefix('Job ')}")
