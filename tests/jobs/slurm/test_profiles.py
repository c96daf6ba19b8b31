"""Options of sbatch and the jobs' Python: a profile, pairs and flags, later ones over earlier; mistakes are named."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from harness.settings import layers
from jobs import suite
from jobs.slurm import profiles, python_command
from jobs.slurm.python_command import PythonCommand

NO_FLAGS: dict[str, Any] = {}


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(
        'partition = "gpu"\ntime = "4:00:00"\ngpus_per_node = 2\nsetup = ["module load cuda"]\nsrun = ["--label"]\n'
    )
    return str(path)


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("90", 90), ("0:30", 1), ("90:01", 91), ("1:30:00", 90), ("1:30:01", 91), ("1-2", 1560), ("1-2:30", 1590)],
)
def test_a_time_limit_in_any_of_sbatchs_forms_is_rounded_up_to_minutes(time: str, minutes: int) -> None:
    assert profiles.minutes(time) == minutes


@pytest.mark.parametrize("time", ["0", "0:00:00", "0-0", "UNLIMITED", "infinite", "-1"])
def test_no_time_limit_is_passed_on_as_none(time: str) -> None:
    parameters = profiles.submitit_parameters({"time": time})
    assert (parameters["time"], parameters["signal_delay_s"]) == (0, 120)


@pytest.mark.parametrize(
    ("text", "pairs", "flags", "message"),
    [
        ("", ["partition"], NO_FLAGS, "--slurm partition: expected KEY=VALUE"),
        ("", [], {"time": "soon"}, "--time soon"),
        ("", ["array=0-3"], NO_FLAGS, "--slurm array=0-3: .* array-parallelism=N"),
        ("", ["array-parallelism=0"], NO_FLAGS, "--array-parallelism 0: expected a positive integer"),
        ("", ["partitoin=gpu"], NO_FLAGS, r"--slurm partitoin: not an sbatch option \(did you mean 'partition'\?\)"),
        ("", ["job_name=mine"], NO_FLAGS, "--slurm job-name=mine: the harness uses job names"),
        ("", ["output=/logs/%j"], NO_FLAGS, "--slurm output=/logs/%j: logs are in the run folder"),
        ("setup = [1]", [], NO_FLAGS, r"setup=\[1\]: expected a string or a list of strings"),
        ("finalize = 5", [], NO_FLAGS, "finalize=5: expected a table"),
        ("mem = {a = 1}", [], NO_FLAGS, "expected a string, a number, true, false or a list"),
        ('[finalize]\ntime = "soon"', [], NO_FLAGS, r"\[finalize\] --time soon"),
        ('[finalize]\npartitoin = "cpu"', [], NO_FLAGS, r"did you mean 'partition'"),
        ('[finalize]\njob_name = "mine"', [], NO_FLAGS, r"\[finalize\] .*job-name=mine: the harness uses job names"),
    ],
)
def test_a_wrong_value_is_named(text: str, pairs: list[str], flags: dict[str, Any], message: str, profile: str) -> None:
    Path(profile).write_text(text)
    with pytest.raises(ValueError, match=message):
        profiles.sbatch_options(profile, pairs, flags)


def test_a_profile_names_the_folder_of_run_folders_for_launches_and_suites_that_do_not(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(profile).write_text('[launch]\noutput = "/scratch/$OWNER/runs"\n')
    with pytest.raises(ValueError, match="undefined environment variable"):
        layers.merged_flags({"profile": profile})
    monkeypatch.setenv("OWNER", "ada")
    assert layers.merged_flags({"profile": profile})["output"] == "/scratch/ada/runs"
    assert layers.merged_flags({"profile": profile, "output": "here"})["output"] == "here"
    assert "launch" not in profiles.sbatch_options(profile, [], NO_FLAGS)
    file = tmp_path / "own.toml"
    file.write_text(f'profile = "{profile}"\ndataset = "demo"\n[[run]]\nmethod = "vanilla"\n')
    read = suite.read(file)
    assert (read.output, read.launches[0].output) == (Path("/scratch/ada/runs"), Path("/scratch/ada/runs"))
    Path(profile).write_text('[launch]\noutput = ["a"]\n')
    with pytest.raises(ValueError, match=r"\[launch\] allows only the key output"):
        layers.merged_flags({"profile": profile})


def test_the_profiles_of_the_repository_are_valid() -> None:
    for path in (Path(__file__).parents[3] / "slurm" / "clusters").glob("*.toml"):
        assert profiles.sbatch_options(path.stem, [], {})["time"] == "4:00:00"


def test_flags_override_pairs_pairs_the_profile_and_sbatch_gets_what_is_not_submitits(profile: str) -> None:
    options = profiles.sbatch_options(profile, ["partition=short", "account=a", "mail_user=me"], {"account": "b"})
    parameters = profiles.submitit_parameters(options)
    assert (parameters["time"], parameters["srun_args"]) == (240, ["--label"])
    assert parameters["setup"][-1] == "module load cuda"
    passed = {"partition": "short", "account": "b", "gpus-per-node": 2, "requeue": True, "mail-user": "me"}
    assert parameters["additional_parameters"] == passed, "underscores are as good as dashes"


@pytest.mark.parametrize(("time", "seconds"), [("1", 10), ("10", 60), ("4:00:00", 120)])
def test_the_signal_comes_early_enough_to_record_and_late_enough_to_work(time: str, seconds: int) -> None:
    assert profiles.submitit_parameters({"time": time})["signal_delay_s"] == seconds


OF_WORKERS = {
    "gpus-per-node": 8,
    "cpus-per-task": 64,
    "mem": "900G",
    "array-parallelism": 5,
    "dependency": "afterok:7",
    "constraint": "h100",
    "nodelist": "n[1-9]",
    "licenses": "x",
    "reservation": "gpus",
    "switches": 1,
    "tres-per-task": "gres/gpu:2",
    "gpu-freq": "high",
    "mem-per-gpu": "9G",
    "ntasks": 2,
    "gres": "gpu:2",
}
TO_SUBMIT = {"partition": "gpu", "account": "a", "qos": "q", "time": "1:00:00", "exclude": "n13", "mail-type": "FAIL"}


def test_the_job_that_grades_has_what_it_takes_to_submit_it_and_nothing_else_of_the_workers() -> None:
    found = profiles.finalizer_parameters({**OF_WORKERS, **TO_SUBMIT})
    passed = {**found["additional_parameters"], "time": found["time"]}
    assert passed == {**TO_SUBMIT, "time": 60, "mem": "4G", "cpus-per-task": 4, "requeue": True}
    assert "cpus-per-task" not in profiles.finalizer_parameters({})["additional_parameters"]


def test_the_table_finalize_overrides_what_the_job_that_grades_has_and_changes_nothing_of_the_workers() -> None:
    table = {"partition": "cpu", "mem": "8G", "cpus_per_task": 16, "reservation": "r", "time": "30"}
    options = {**OF_WORKERS, **TO_SUBMIT, "finalize": table}
    found = profiles.finalizer_parameters(options)
    passed = {**TO_SUBMIT, **table, "time": found["time"], "cpus-per-task": 16, "requeue": True}
    del passed["cpus_per_task"]
    assert {**found["additional_parameters"], "time": 30} == passed
    assert profiles.submitit_parameters(options) == profiles.submitit_parameters({**OF_WORKERS, **TO_SUBMIT})
    for further in ({"mem": False}, {"mem-per-cpu": "2G"}):
        assert "mem" not in profiles.finalizer_parameters({**TO_SUBMIT, "finalize": further})["additional_parameters"]


def test_a_profile_brings_its_table_finalize(profile: str) -> None:
    Path(profile).write_text("[finalize]\ncpus_per_task = 2\n")
    assert profiles.sbatch_options(profile, [], {})["finalize"] == {"cpus_per_task": 2}


def additional(**options: Any) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    found: dict[str, Any] = profiles.submitit_parameters(named)["additional_parameters"]
    return found


@pytest.mark.parametrize("value", [False, "false"])
def test_a_switch_that_is_off_is_what_sbatch_calls_its_opposite_or_nothing(value: object) -> None:
    assert additional(requeue=value) == {"no-requeue": True}
    assert additional(no_requeue=value) == {"requeue": True}
    assert additional(exclusive=value, contiguous=value) == {"requeue": True}


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


ROOT = Path(__file__).resolve().parents[3]
SECTIONS = {
    "arguments", "environment", "files", "help", "labels", "post", "pre", "runscript", "setup", "startscript", "test",
}  # fmt: skip


def test_the_recipe_has_apptainers_sections_copies_the_project_and_has_a_vllm_that_it_admits() -> None:
    sections: dict[str, list[str]] = {"": []}
    name = ""
    for line in (ROOT / "slurm" / "apptainer.def").read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"%(\w+)", line):
            name = match[1]
            assert name not in sections, name
            sections[name] = []
        elif line.strip() and not line.lstrip().startswith("#"):
            assert not name or line.startswith("    "), line
            sections[name].append(line.strip())
    assert sections.keys() - {""} <= SECTIONS
    header = dict(line.split(": ", 1) for line in sections[""])
    assert header["Bootstrap"] == "docker"
    image, version = header["From"].rsplit(":v", 1)
    assert image == "vllm/vllm-openai"
    [admitted] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["engine"]
    assert Requirement(admitted).specifier.contains(version)
    sources = {line.split()[0] for line in sections["files"]}
    assert {"harness", "grading", "jobs", "warehouse", "pyproject.toml"} <= sources
