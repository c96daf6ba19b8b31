"""A profile's `python`: a command that the batch script's shell takes as it is written, but for its variables."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from jobs.slurm import profiles, python_command
from jobs.slurm.python_command import PythonCommand


def words_in_bash(command: PythonCommand, *folders: str, **variables: str) -> list[str]:
    """Return the words that bash makes of a command where these folders have to be shown."""
    named = [f"'{folder}'" for folder in folders]
    script = [*command.shell_lines(named), 'printf "%s\\n" "${harness_python[@]}"']
    done = subprocess.run(["bash", "-c", "\n".join(script)], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def command_of(value: Any, **pyxis: str) -> PythonCommand:
    named = {f"container-{option}": text for option, text in pyxis.items()}
    command = python_command.read({"python": value, **named})
    assert command is not None
    return command


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("/venv/bin/python", "/venv/bin/python"),
        (["/my venv/bin/python"], ["/my venv/bin/python"]),
        ("$VENV/bin/python", ["/the venv/bin/python"]),
        ("env A=`date` B=$(date) 'C=\"$VENV\"' python3", ["env", "A=`date`", "B=$(date)", 'C="/the venv"', "python3"]),
        ("apptainer exec --nv /a.sif python3", "apptainer exec --bind /usr --bind /tmp --nv /a.sif python3"),
        ("podman run --rm image python3", "podman run --volume /usr:/usr --volume /tmp:/tmp --rm image python3"),
        ("ch-run /image -- /opt/python3", "ch-run --bind /usr --bind /tmp /image -- /opt/python3"),
    ],
)
def test_a_command_starts_as_it_is_written_and_shows_the_folders(written: Any, words: str | list[str]) -> None:
    started = words_in_bash(command_of(written), "/usr", "/tmp", VENV="/the venv", HOME="/home/me")
    assert started == (words.split() if isinstance(words, str) else words)


def test_a_variable_that_is_not_set_ends_the_batch_script_with_a_line() -> None:
    script = "\n".join([*command_of("$VENV/bin/python").shell_lines(), "echo started"])
    done = subprocess.run(["bash", "-c", script], env={}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "VENV" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"container-image": "/i", "container-mounts": "/scratch:/data"}, "--container-image=/i"),
        (
            {"container-image": "/i", "container-mounts": ["/scratch:/data"], "container-mount-home": False},
            "--container-image=/i --no-container-mount-home",
        ),
    ],
)
def test_pyxis_gets_the_jobs_folders_beside_its_own_mounts(options: dict[str, Any], left: str) -> None:
    parameters = profiles.submitit_parameters({**options, "python": "python3"})
    assert parameters["srun_args"] == left.split()
    assert not {key for key in parameters["additional_parameters"] if key.startswith("container")}
    words = words_in_bash(parameters["python"], "/usr")
    assert words == ["--container-mounts=/scratch:/data,/usr:/usr", "python3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"python": "apptainer exec 'a.sif python3"}, "No closing quotation"),
        ({"python": ["apptainer", 3]}, "expected a command"),
        ({"container-image": "/a.sqsh"}, "container-image: also set the interpreter"),
    ],
)
def test_a_command_that_cannot_work_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        profiles.sbatch_options(None, [], options)
    assert "\n" not in str(refusal.value)
