"""A launch is validated once, from wherever it comes, and equal launches are equal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.methods import defaults
from harness.settings.launch_command import parsed_flags
from harness.settings.launch_settings import Launch
from harness.settings.layers import arguments, launch_from, merged_flags
from harness.settings.roles import ModelSettings

SPECCOT = {"method": "speccot", "dataset": "demo"}


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"samples": "3"}, "samples", 3),
        ({"problems": 7}, "problems", "7"),
        ({"slurm": ["a=1", "b=2"]}, "slurm", ("a=1", "b=2")),
        ({"output": "elsewhere"}, "output", Path("elsewhere")),
        ({"gpus-per-node": 2}, "sbatch", {"gpus-per-node": "2"}),
        ({"drafts": "4"}, "parameters", {**defaults("speccot"), "drafts": 4}),
    ],
)
def test_values_of_a_file_are_read_as_those_of_a_command_line(flags: dict[str, Any], field: str, value: object) -> None:
    from_file = launch_from({**SPECCOT, **flags})
    assert getattr(from_file, field) == value
    assert launch_from(parsed_flags(arguments({**SPECCOT, **flags}))) == from_file


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"dataset": "demo"}, "--method is missing; choose from vanilla"),
        ({"method": "speccot"}, "--dataset is missing; choose from gsm8k"),
        ({**SPECCOT, "method": "specot"}, "--method specot: unknown; valid: vanilla"),
        ({**SPECCOT, "samples": 0}, "--samples 0: Input should be greater than or equal to 1"),
        ({**SPECCOT, "drafts": 26}, "--drafts must be from 1 to 25, not 26"),
        ({**SPECCOT, "samples": True}, "--samples: expected a value, not true or false"),
        ({**SPECCOT, "score": "average"}, "--score is not a parameter of speccot; valid: --drafts"),
        ({**SPECCOT, "data_dir": "nowhere"}, "--data-dir nowhere: no such folder"),
        ({"method": "speccot", "datset": "demo"}, "unknown key 'datset' (did you mean 'dataset'?)"),
        ({**SPECCOT, "preset": "mine"}, "--preset mine: unknown; valid: speccot-qwq"),
        ({**SPECCOT, "target": {"temprature": 1}}, "unknown key 'target.temprature' (did you mean 'target.temp"),
        ({**SPECCOT, "target": {"top_k": 1}, "target-top-k": 2}, "target-top-k: set twice"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as refused:
        launch_from(flags)
    assert "\n" not in str(refused.value)


def test_a_tag_or_a_time_may_be_a_date_or_a_time_of_toml(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text("tag = 2026-11-22\ntime = 04:00:00\n")
    launch = launch_from({**SPECCOT, "config": config})
    assert (launch.tag, launch.sbatch) == ("2026-11-22", {"time": "04:00:00"})


def test_gpus_that_are_typed_replace_those_of_a_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    config.write_text('gpus-per-node = "h100:2"\ngpu-memory = "94GB"\n')
    assert merged_flags({"config": str(config), "gres": "gpu:l40s:4"}) == {"gres": "gpu:l40s:4"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('temperature = "hot"', "--target.temperature hot: Input should be a valid number"),
        ("top-k = 1\ntop_k = 2", "target.top_k: set twice"),
    ],
)
def test_a_wrong_value_of_a_models_table_names_its_file(text: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    config.write_text(f"[target]\n{text}\n")
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        merged_flags({"config": str(config)})
    assert str(config) in str(refused.value)


def test_a_flag_wins_over_the_file_and_the_file_over_the_preset_that_it_names(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('preset = "specreason-qwq"\ndataset = "demo"\ntoken-budget = 100\nsamples = 3\n')
    launch = launch_from({"config": config, "samples": 2})
    assert (launch.samples, launch.token_budget, launch.target.model) == (2, 100, "qwq-32b")
    assert (launch.preset, launch.method, launch.parameters["threshold"]) == ("specreason-qwq", "specreason", 7.0)


def test_a_changed_copy_of_a_launch_is_validated() -> None:
    launch = Launch.from_flags({"method": "vanilla", "dataset": "demo"})
    assert launch.changed(samples=3) == launch_from({"method": "vanilla", "dataset": "demo", "samples": 3})
    with pytest.raises(ValueError, match="--samples 0: "):
        launch.changed(samples=0)


@pytest.mark.parametrize(
    "flags",
    [
        {"target": "qwq-32b", "target_temperature": 0.7, "target-gpus": "1-2", "target-adapter": "x"},
        {"target": {"model": "qwq-32b", "temperature": 0.7, "gpus": [1, 2], "adapter": "x"}},
        {"target": "qwq-32b", "target.temperature": 0.7, "target.tensor-parallel": 2, "target-gpus": "1,2",
         "target.adapter": "x"},
    ],
)  # fmt: skip
def test_every_spelling_of_a_models_setting_is_the_same_launch(flags: dict[str, Any]) -> None:
    launch = launch_from({**SPECCOT, **flags})
    own = ModelSettings(model="qwq-32b", temperature=0.7, gpus=(1, 2), tensor_parallel=2, adapter="x")
    assert (launch.target, launch.draft) == (own, ModelSettings())
    assert launch_from(parsed_flags(arguments({**SPECCOT, **flags}))) == launch


def test_a_role_of_a_file_is_a_name_or_a_table_and_layers_are_merged_key_by_key(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('preset = "speccot-qwq"\ndraft = "org/own"\n[target]\ntop-k = 20\ntemplate = {effort = "low"}\n')
    launch = launch_from({"dataset": "demo", "config": config, "target": {"temperature": 0.5}, "target_top_k": 5})
    assert launch.draft == ModelSettings(model="org/own")
    assert launch.target == ModelSettings(model="qwq-32b", top_k=5, temperature=0.5, template={"effort": "low"})
    assert launch.sampling_of("target") == {"temperature": 0.5, "top_k": 5}
