"""Options of sbatch: a profile, pairs and flags, later ones over earlier ones; mistakes are named before a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.slurm import profiles

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


@pytest.mark.parametrize("time", ["", "soon", "4h", "1:2:3:4", "-5"])
def test_any_other_time_limit_is_rejected(time: str) -> None:
    with pytest.raises(ValueError, match="--time"):
        profiles.minutes(time)


def test_flags_override_pairs_and_pairs_override_the_profile(profile: str) -> None:
    options = profiles.sbatch_options(profile, ["partition=short", "account=a", "mail_user=me"], {"account": "b"})
    assert options["partition"] == "short"
    assert options["account"] == "b"
    assert options["mail-user"] == "me", "underscores are as good as dashes"
    assert options["gpus-per-node"] == 2


def test_gpus_that_are_typed_replace_those_of_the_profile(profile: str) -> None:
    options = profiles.sbatch_options(profile, ["gpus-per-task=h100:2"], {"gres": None})
    assert options["gpus-per-task"] == "h100:2"
    assert "gpus-per-node" not in options


def test_an_omitted_flag_does_not_override(profile: str) -> None:
    assert profiles.sbatch_options(profile, [], {"partition": None})["partition"] == "gpu"


@pytest.mark.parametrize(
    ("pairs", "flags", "message"),
    [
        (["partition"], NO_FLAGS, "--slurm partition: expected KEY=VALUE"),
        (["gpus-per-node=two"], NO_FLAGS, "--gpus-per-node two: expected a number"),
        ([], {"time": "soon"}, "--time soon"),
        (["array=0-3"], NO_FLAGS, "--slurm array=0-3: .* array-parallelism=N"),
        (["array-parallelism=0"], NO_FLAGS, "--array-parallelism 0: expected a number"),
        (["srun=--label 'a"], NO_FLAGS, "srun = .*No closing quotation"),
        (["partitoin=gpu"], NO_FLAGS, "--slurm partitoin=gpu: sbatch has no such option; did you mean partition"),
        (["gpus_per_nodes=2"], NO_FLAGS, "did you mean gpus-per-node"),
        (["o=/logs/%j"], NO_FLAGS, "--slurm o=/logs/%j: .*valid: the long names"),
        (["job_name=mine"], NO_FLAGS, "--slurm job-name=mine: the harness names its jobs"),
        (["output=/logs/%j"], NO_FLAGS, "--slurm output=/logs/%j: logs are in the run folder"),
        (["error=/logs/%j"], NO_FLAGS, "--slurm error=/logs/%j: logs are in the run folder"),
        (["open-mode=truncate"], NO_FLAGS, "--slurm open-mode=truncate: a requeued task appends"),
        (["signal=USR1@60"], NO_FLAGS, "--slurm signal=USR1@60: workers are signalled 10 to 120 s before"),
        (["test-only=true"], NO_FLAGS, "--slurm test-only=true: the harness submits a script of its own"),
    ],
)
def test_a_wrong_value_is_named(pairs: list[str], flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        profiles.sbatch_options(None, pairs, flags)


KINDS = (
    ("gpus", "two", "a number, or a type"),
    ("gpus-per-task", "h100:x", "a number, or a type"),
    ("nodes", "x", "a number, or the fewest and the most"),
    ("ntasks", "2.5", "a number of 1 or more"),
    ("ntasks-per-gpu", "0", "a number of 1 or more"),
    ("mem", "lots", "a number with a unit"),
    ("mem-per-gpu", "1.5G", "a number with a unit"),
    ("requeue", "maybe", "true or false"),
    ("hold", "2", "true or false"),
    ("kill-on-invalid-dep", "maybe", "true or false"),
    ("exclusive", "perhaps", "true, false, user"),
    ("nice", "low", "true, false or a number"),
    ("switches", "x", "a number, or a number and the longest wait"),
    ("wait-all-nodes", "yes", "0 or 1"),
    ("time-min", "soon", "minutes"),
)


@pytest.mark.parametrize(("key", "value", "expected"), KINDS)
def test_a_value_of_another_kind_is_refused_on_the_command_line_in_a_profile_and_its_table(
    key: str, value: str, expected: str, tmp_path: Path
) -> None:
    message = f"--{key} {value}: expected {expected}"
    with pytest.raises(ValueError, match=message):
        profiles.sbatch_options(None, [f"{key}={value}"], {})
    path = tmp_path / "cluster.toml"
    for start in ("", "[finalize]\n"):
        path.write_text(f'{start}{key} = "{value}"\n')
        with pytest.raises(ValueError, match=message):
            profiles.sbatch_options(str(path), [], {})


def test_a_switch_is_no_value_of_an_option_that_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    for key, expected in (("partition", "a value, not a switch"), ("nodes", "a number"), ("mem", "a number with")):
        path.write_text(f"{key} = true\n")
        with pytest.raises(ValueError, match=f"--{key} True: expected {expected}"):
            profiles.sbatch_options(str(path), [], {})


@pytest.mark.parametrize(
    "pair",
    [
        *(
            "gpus=volta1:3,kepler2:5",
            "gpus-per-task=2",
            "nodes=2-4",
            "nodes=1k",
            "nodes=1,5,9-13:2",
            "mem=0",
            "mem=4GB",
        ),
        *("mem-per-cpu=512", "tmp=10g", "nice=-5", "nice=true", "exclusive=user", "exclusive=false", "requeue=no"),
        *("switches=1", "switches=1@1:00:00", "core-spec=0", "time-min=1-2", "kill-on-invalid-dep=yes", "stepmgr=true"),
        *("comment=two", "priority=TOP", "gres=gpu:2", "begin=now+1hour", "licenses=a:2", "propagate=ALL"),
    ],
)
def test_every_form_that_sbatch_takes_is_accepted(pair: str) -> None:
    assert profiles.sbatch_options(None, [pair], {}) == dict([pair.split("=", 1)])


def test_a_profile_that_does_not_exist_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--profile nowhere: .*available profiles are: .*example"):
        profiles.load("nowhere")
    broken = tmp_path / "broken.toml"
    broken.write_text("partition = ")
    with pytest.raises(ValueError, match=r"broken\.toml: not a readable TOML file"):
        profiles.load(str(broken))


def test_a_key_of_a_profile_that_sbatch_does_not_know_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('partition = "gpu"\ncontainerimage = "/i.sqsh"\n')
    with pytest.raises(ValueError, match=r"--profile .*mine\.toml: containerimage=.*did you mean container-image\?"):
        profiles.sbatch_options(str(path), [], {})


def test_an_option_that_a_plugin_of_the_site_adds_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'Options provided by plugins:'\necho '      --lua-tag=name  tag of the job'\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    profiles._options_of_site.cache_clear()
    assert profiles.sbatch_options(None, ["lua-tag=x"], {}) == {"lua-tag": "x"}
    with pytest.raises(ValueError, match=r"did you mean lua-tag\?"):
        profiles.sbatch_options(None, ["luatag=x"], {})
    profiles._options_of_site.cache_clear()


def test_the_profiles_of_the_repository_are_valid() -> None:
    for path in (Path(__file__).parents[3] / "slurm" / "clusters").glob("*.toml"):
        assert profiles.sbatch_options(path.stem, [], {})["time"] == "4:00:00"


def test_submitit_gets_its_own_parameters_and_sbatch_the_rest(profile: str) -> None:
    parameters = profiles.submitit_parameters(profiles.sbatch_options(profile, ["mail-user=me"], {}))
    assert (parameters["partition"], parameters["time"], parameters["gpus_per_node"]) == ("gpu", 240, 2)
    assert parameters["setup"][-1] == "module load cuda"
    assert parameters["srun_args"] == ["--label"]
    assert parameters["additional_parameters"] == {"requeue": True, "mail-user": "me"}


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
    assert {**found, **found["additional_parameters"]}.items() >= {**TO_SUBMIT, "time": 60, "mem": "4G"}.items()
    assert found["cpus_per_task"] == 4
    others = {name.replace("-", "_") for name in OF_WORKERS} - {"mem", "cpus_per_task"}
    assert not others & {name.replace("-", "_") for name in (*found, *found["additional_parameters"])}
    assert "cpus_per_task" not in profiles.finalizer_parameters({})


def test_the_table_finalize_overrides_what_the_job_that_grades_has_and_changes_nothing_of_the_workers() -> None:
    table = {"partition": "cpu", "mem": "8G", "cpus_per_task": 16, "reservation": "r", "time": "30"}
    options = {**OF_WORKERS, **TO_SUBMIT, "finalize": table}
    found = profiles.finalizer_parameters(options)
    assert (found["partition"], found["mem"], found["cpus_per_task"], found["time"]) == ("cpu", "8G", 16, 30)
    assert found["additional_parameters"]["reservation"] == "r"
    assert profiles.submitit_parameters(options) == profiles.submitit_parameters({**OF_WORKERS, **TO_SUBMIT})
    for further in ({"mem": False}, {"mem-per-cpu": "2G"}):
        assert "mem" not in profiles.finalizer_parameters({**TO_SUBMIT, "finalize": further})


def test_a_profile_brings_its_table_finalize_and_a_wrong_value_in_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('partition = "gpu"\n[finalize]\ncpus_per_task = 2\n')
    assert profiles.sbatch_options(str(path), [], {})["finalize"] == {"cpus_per_task": 2}
    for text, message in (
        ('finalize = "cpu"', "finalize: expected a table"),
        *(
            (f"[finalize]\n{line}", rf"\[finalize\] .*{message}")
            for line, message in (
                ('time = "soon"', "--time soon"),
                ('partitoin = "cpu"', "partitoin=cpu: .*did you mean partition"),
                ('o = "/logs/%j"', "o=/logs/%j: .*valid: the long names"),
                ('output = "/logs/%j"', "output=/logs/%j: logs are in the run folder"),
                ('job_name = "mine"', "job-name=mine: the harness names its jobs"),
                ('array = "0-3"', "array=0-3: "),
                ('dependency = "singleton"', "dependency=singleton: the job waits for the workers"),
                ("array_parallelism = 2", "array-parallelism=2: an option of the workers"),
                ('gpu_memory = "80GB"', "gpu-memory=80GB: an option of the workers"),
            )
        ),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            profiles.sbatch_options(str(path), [], {})


def additional(**options: Any) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    found: dict[str, Any] = profiles.submitit_parameters(named)["additional_parameters"]
    return found


@pytest.mark.parametrize("value", [False, "false", "no", "off"])
def test_a_switch_that_is_off_is_what_sbatch_calls_its_opposite_or_nothing(value: object) -> None:
    assert additional(requeue=value) == {"no-requeue": True}
    assert additional(no_requeue=value) == {"requeue": True}
    assert additional(exclusive=value, contiguous=value) == {"requeue": True}
    assert additional(kill_on_invalid_dep=value) == {"requeue": True, "kill-on-invalid-dep": "no"}


@pytest.mark.parametrize("value", [True, "true", "yes", "on"])
def test_a_switch_that_is_on_has_no_value(value: object) -> None:
    assert additional(requeue=value, exclusive=value, nice=value) == {"requeue": True, "exclusive": True, "nice": True}
    assert additional(no_requeue=value) == {"no-requeue": True}


def test_a_number_is_a_truth_for_a_switch_and_a_value_where_sbatch_takes_one() -> None:
    assert additional(requeue="0", hold="1") == {"no-requeue": True, "hold": True}
    assert additional(nice="1", get_user_env="1") == {"requeue": True, "nice": "1", "get-user-env": "1"}


def test_a_value_that_is_no_switch_stays_as_it_is() -> None:
    passed = additional(exclusive="user", comment="true", licenses=["a", "b:2"])
    assert passed == {"requeue": True, "exclusive": "user", "comment": "true", "licenses": "a,b:2"}


def test_setup_and_arguments_of_srun_may_be_one_string(tmp_path: Path) -> None:
    path = tmp_path / "strings.toml"
    path.write_text('setup = "module load x"\nsrun = "--mpi=none --export=\'A B\'"\n')
    parameters = profiles.submitit_parameters(profiles.load(str(path)))
    assert parameters["setup"][-1] == "module load x"
    assert parameters["srun_args"] == ["--mpi=none", "--export=A B"]
    for key in ("setup", "srun"):
        with pytest.raises(ValueError, match=f"{key}: expected"):
            profiles.submitit_parameters({key: [1]})


def test_an_array_is_throttled_in_sbatchs_form_too() -> None:
    options = profiles.sbatch_options(None, ["array=%16"], {})
    assert profiles.submitit_parameters(options)["array_parallelism"] == 16
    assert "array" not in options


@pytest.mark.parametrize("cards", ["h200:2", "2", "h100", "a100:1,h100:1", "nvidia_a100_80gb_pcie:2"])
def test_cards_may_have_a_type(cards: str) -> None:
    assert str(profiles.submitit_parameters({"gpus-per-node": cards})["gpus_per_node"]) == cards
