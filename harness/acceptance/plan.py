"""What is to be checked, and with how many samples: the input of every check, as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.acceptance.catalog import Device, Kind
from harness.engine import Role


@dataclass(frozen=True)
class Sizes:
    """Numbers of problems, requests and tokens."""

    verdict_problems: int = 24
    """Problems whose verdicts are compared, with four kinds of verdict each."""
    mixed_verdicts: int = 500
    mixed_writers: int = 320
    mixed_tokens: int = 32
    """Longest completion of a writer."""
    chains: int = 4
    """Samples whose prefix cache is looked at."""
    lossless_prompts: int = 40
    lossless_tokens: int = 96
    unbiased_samples: int = 8
    """Completions of each prompt at temperature 0.6."""
    run_method: str = "speccot"
    """Method of the run that is interrupted: `speccot`, or `vanilla`, which needs the target's engine only."""
    run_samples: int = 8
    """Samples of each of its 40 problems."""
    run_concurrency: int = 16
    steps_before: int = 24
    """Accepted steps of a run before it is interrupted."""


SMALL = Sizes(
    verdict_problems=6,
    mixed_verdicts=60,
    mixed_writers=40,
    mixed_tokens=8,
    chains=2,
    lossless_prompts=8,
    lossless_tokens=32,
    unbiased_samples=2,
    run_method="vanilla",
    run_samples=1,
    run_concurrency=4,
    steps_before=4,
)
"""On a CPU and with `--quick`: most of the time is the engines' start."""


@dataclass(frozen=True)
class PlannedModel:
    """A model as an engine loads it."""

    name: str
    path: str
    revision: str | None


@dataclass(frozen=True)
class Plan:
    """One acceptance."""

    kind: Kind
    device: Device
    draft: PlannedModel
    target: PlannedModel
    is_bundled: bool
    """True for the bundled pair, whose verdicts are known to be of high mass."""
    sizes: Sizes
    work: str
    """Folder for logs, caches and run folders."""

    def model(self, role: Role) -> PlannedModel:
        """Return the model of a role."""
        return self.draft if role == "draft" else self.target

    @property
    def logs(self) -> Path:
        """Folder of the engines' output."""
        return Path(self.work) / "logs"

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read the output of `to_json`."""
        record: dict[str, Any] = json.loads(text)
        models = {role: PlannedModel(**record.pop(role)) for role in ("draft", "target")}
        return cls(**{**record, **models, "sizes": Sizes(**record["sizes"])})
