"""Which models are small enough for one core of a processor."""

from __future__ import annotations

import json
from pathlib import Path

from harness.engines.cores import MOST_BYTES_ON_ONE_CORE
from harness.sizing.run_sizing import ModelFiles, RunSizing, small_models
from harness.weights.models import pair_folder


def _sizing(**folders: Path | str) -> RunSizing:
    files = {role: ModelFiles(role, str(folder)) for role, folder in folders.items()}
    return RunSizing(models=files, context_tokens=64, sample_tokens=dict.fromkeys(files, 64), concurrency=1)  # type: ignore[arg-type]


def test_the_bundled_models_are_small_and_a_model_of_unknown_size_is_not() -> None:
    sizing = _sizing(draft=pair_folder("demo-draft"), target=pair_folder("demo-target"))
    assert small_models(sizing) == {"draft", "target"}
    assert small_models(_sizing(draft=pair_folder("demo-draft"), target="nobody/has-it")) == {"draft"}


def test_a_configuration_that_nobody_can_read_is_not_small_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"0")
    for content in ('{"n_head": 2}', "{"):
        (tmp_path / "config.json").write_text(content)
        assert small_models(_sizing(target=tmp_path)) == set()


def test_the_bytes_of_the_weights_decide(tmp_path: Path) -> None:
    config = json.loads((Path(pair_folder("demo-target")) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = tmp_path / "model.safetensors"
    for share, small in ((0.9, {"target"}), (1.1, set())):  # padding counts as well
        with weights.open("wb") as file:
            file.truncate(int(share * MOST_BYTES_ON_ONE_CORE))
        assert small_models(_sizing(target=tmp_path)) == small
