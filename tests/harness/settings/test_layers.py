"""Tests of the launcher's flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.settings.layers import merged_flags


def test_gpus_that_are_typed_replace_those_of_a_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    config.write_text('gpus-per-node = "h100:2"\ngpu-memory = "94GB"\n')
    merged = merged_flags({"config": str(config), "gres": "gpu:l40s:4"})
    assert merged == {"gres": "gpu:l40s:4"}


def test_a_wrong_value_or_key_of_a_models_table_names_its_file(tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    for text, message in (
        ('temperature = "hot"', "--target.temperature hot: Input should be a valid number"),
        ("temprature = 1", "unknown key 'target.temprature' (did you mean 'target.temperature'?)"),
        ("top-k = 1\ntop_k = 2", "target.top_k: set twice"),
    ):
        config.write_text(f"[target]\n{text}\n")
        with pytest.raises(ValueError, match=re.escape(message)) as refused:
            merged_flags({"config": str(config)})
        assert str(config) in str(refused.value)
        assert message in str(refused.value)
