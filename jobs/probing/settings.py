"""The table `[probe]` of a suite's file: its runs are probed once they are finished.

[probe]
points = 200        # decisions of each run to look at
rollouts = 8        # continuations of each, behind the draft's proposal and behind the target's own step
seed = 0            # of the points and of the continuations
concurrency = 64    # continuations in flight per worker
"""

from __future__ import annotations

from typing import Annotated, TypeVar

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


_Table = TypeVar("_Table", bound=BaseModel)


def from_table(model: type[_Table], name: str, table: object) -> _Table:
    """Validate a table of a suite's file. Raises ValueError with one line."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        known = f"; the keys are {', '.join(model.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise ValueError(f"[{name}]: {place} {first['input']}: {first['msg']}{known}") from error
