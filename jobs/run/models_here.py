"""Whether a model that a run names is still where the run found it."""

from __future__ import annotations

from pathlib import Path

from jobs.run.spec import ModelSpec


class ModelGone(ValueError):
    """The folder of a model no longer exists; the message is one line."""


def check_model(run_id: str, model: ModelSpec) -> None:
    """Raise ModelGone where a model was a folder that this machine does not have. A hub id is not looked up."""
    if Path(model.path).is_absolute() and not Path(model.path).exists():
        raise ModelGone(
            f"{run_id} names the model {model.name} by the folder {model.path}, which does not exist on this machine: "
            "put the model there, or run the command where it is"
        )
