"""Where engines are placed is part of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.settings.launch_settings import Launch
from jobs.preparation import prepare
from jobs.run.plan import plan


def launch(tmp_path: Path, **flags: Any) -> Launch:
    common = {"method": "speccot", "dataset": "demo", "engine": "scripted", "output": str(tmp_path)}
    return Launch.from_flags({**common, **flags})


def test_more_cards_than_a_worker_is_asked_to_have_are_refused_on_the_login_node(tmp_path: Path) -> None:
    flags = {"cluster": "slurm", "draft_gpus": "0", "target_gpus": "1-4"}
    with pytest.raises(ValueError, match=r"--target.gpus 1,2,3,4: a worker has 4 GPUs; valid: 0 to 3, or all"):
        prepare(launch(tmp_path, gpus_per_node="4", **flags))
    assert prepare(launch(tmp_path, gpus_per_node="5", **flags)).plan.spec.settings["draft"].gpus == (0,)


def test_a_machine_without_gpus_refuses_named_cards(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this machine has 0 GPUs"):
        plan(launch(tmp_path, engine="transformers", draft_gpus="0", target_gpus="1"), "local")
