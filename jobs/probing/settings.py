"""The table `[probe]` of a suite's file: its runs are probed once they are finished.

[probe]
points = 200        # decisions of each run to look at
rollouts = 8        # continuations of each, behind the draft's proposal and behind the target's own step
seed = 0            # of the points and of the continuations
concurrency = 64    # continuations in flight per worker
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_Count = Annotated[int, Field(ge=1, strict=True)]


class ProbeSettings(BaseModel):
    """How the runs of a suite are probed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: Annotated[int, Field(ge=2, strict=True)] = 200
    """Decisions of each run to look at."""
    rollouts: _Count = 8
    """Continuations of each point, behind the draft's proposal and behind the target's own step."""
    seed: Annotated[int, Field(strict=True)] = 0
    """Seed from which the points are drawn and their continuations are sampled."""
    concurrency: _Count = 64
    """Continuations in flight per worker."""

    @property
    def num_continuations(self) -> int:
        """The most continuations of one run."""
        return 2 * self.points * self.rollouts

    @property
    def in_words(self) -> str:
        """How much is looked at, as the end of a sentence."""
        return f"{self.points} decisions, continued {self.rollouts} times each way"


def from_table(table: Any) -> ProbeSettings:
    """Validate the table `[probe]`. Raises ValueError with one line."""
    if not isinstance(table, dict):
        raise ValueError("probe: expected a table [probe]")
    try:
        return ProbeSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0]
        if first["type"] == "extra_forbidden":
            raise ValueError(
                f"[probe]: unknown key {name}; the keys are {', '.join(ProbeSettings.model_fields)}"
            ) from error
        raise ValueError(f"[probe]: {name} {first['input']}: {first['msg']}") from error
