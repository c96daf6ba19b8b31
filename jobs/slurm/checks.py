"""Slurm as a run needs it: its commands, a controller that answers, accounting, and options that sbatch takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.checks.check import Check, Question, failure, ok, warning
from jobs.slurm import client, profiles

_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
_SECONDS = 15.0
_NO_OPTIONS = {"setup", "srun", "array-parallelism", "stderr-to-stdout", "time"}
"""Of a profile: no words of sbatch, or given in another form."""


def check_slurm(question: Question) -> Iterator[Check]:
    """From here: login node or node. Every call has a time limit: clients without client.conf hang for a minute."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        if question.cluster == "slurm":
            yield failure("slurm", f"{', '.join(missing)} not found: load the site's Slurm module or log in elsewhere")
        else:
            yield ok("slurm", f"none here; runs go to --cluster {question.cluster}")
        return
    try:
        if "UP" not in client.ask("scontrol", "ping", seconds=_SECONDS):
            raise client.SlurmError("scontrol ping: DOWN")
    except client.SlurmError as silent:
        needed = question.cluster == "slurm"
        where = os.environ.get("SLURM_CONF", "the site's client.conf")
        text = f"no controller answers ({silent}): see {where}, or sinfo"
        yield failure("slurm", text) if needed else ok("slurm", f"{text}; runs go to --cluster {question.cluster}")
        return
    yield ok("slurm", f"the controller answers, {_version()}")
    yield _accounting()
    if not question.on_node:
        yield _arrays(question.tasks)
        if question.cluster == "slurm":
            yield _options(dict(question.sbatch or {}))


def _version() -> str:
    try:
        return client.ask("sbatch", "--version", seconds=_SECONDS).strip()
    except client.SlurmError:
        return "of an unknown version"


def _accounting() -> Check:
    try:
        client.ask("sacct", "-n", "-X", "-P", "-S", "now-1minutes", "-o", "JobID", seconds=_SECONDS)
    except client.SlurmError as silent:
        return failure("slurm accounting", f"{silent}; submitit sees no states without it: the site must run slurmdbd")
    return ok("slurm accounting", "sacct answers")


def _arrays(tasks: int) -> Check:
    try:
        most = client.max_array_size() - 1
    except client.SlurmError as silent:
        return warning("slurm arrays", f"MaxArraySize is not known: {silent}")
    if tasks > most:
        return ok(
            "slurm arrays", f"{tasks} tasks, at most {most} in one array: they go out as {-(-tasks // most)} arrays"
        )
    return ok("slurm arrays", f"at most {most} tasks in one")


def _options(words: Mapping[str, Any]) -> Check:
    """Whether sbatch would take a job with these options; nothing is submitted."""
    limit = profiles.minutes(words.get("time", profiles.DEFAULT_TIME))
    given = [
        f"--{word}" if value is True else f"--{word}={value}"
        for word, value in words.items()
        if word not in _NO_OPTIONS
    ]
    command = ["sbatch", "--test-only", f"--time={limit}", *given, "--wrap=true"]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment, cwd=Path("/")
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return failure("sbatch", f"does not answer: {problem}")
    said = " ".join((done.stderr or done.stdout).replace("sbatch: ", "").split())
    if done.returncode != 0:
        return failure(
            "sbatch", f"would not take the job: {said}; see --partition, --account, --qos, --gpus-per-node, --time"
        )
    return ok("sbatch", f"would take it: {said.removeprefix('Job ')}")
