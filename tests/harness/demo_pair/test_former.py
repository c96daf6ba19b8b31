"""A training begins with the weights that its configuration names, and with no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.demo_pair import config as configuration
from harness.demo_pair.config import Former
from harness.demo_pair.former import FormerPair, WrongFormerPair
from harness.demo_pair.pipeline import Training, TrainingRefused
from harness.weights import models


def named(folder: Path) -> Former:
    draft, target = (
        hashlib.sha256((folder / role / "model.safetensors").read_bytes()).hexdigest() for role in ("draft", "target")
    )
    return Former(commit="0123456789", draft=draft, target=target)


def test_the_weights_that_are_named_are_loaded() -> None:
    folder = models.pair_folder(next(iter(models.PAIR))).parent
    former = FormerPair(named(folder), folder)
    assert former.load("draft").config.num_hidden_layers < former.load("target").config.num_hidden_layers


def test_other_weights_are_refused_with_the_command_that_gets_them(tmp_path: Path) -> None:
    for role in ("draft", "target"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "model.safetensors").write_bytes(role.encode())
    expected = named(tmp_path)
    FormerPair(expected, tmp_path)
    (tmp_path / "target" / "model.safetensors").write_bytes(b"another")
    with pytest.raises(WrongFormerPair, match=r"its target is not the one .* git archive 0123456789 "):
        FormerPair(expected, tmp_path)


def test_the_bundled_training_is_refused_without_the_weights_that_it_begins_with(tmp_path: Path) -> None:
    with pytest.raises(TrainingRefused, match="give --former FOLDER/harness/data/models"):
        Training(configuration.read(configuration.DEFAULT), tmp_path, "cpu", print)
