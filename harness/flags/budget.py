"""What a run may cost, and from what its cost is estimated before it has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from harness.launch_flags import Flag

_MAX_GPU_HOURS = (
    "Refuse to begin where the estimate is above H GPU-hours, or where there is none. Without GPUs: hours of workers."
)
_HARDWARE = (
    "TOML file of a machine's speeds (example: harness/papers/hardware/a100x4.toml), for the estimate of GPU-hours "
    "where no finished run tells."
)


def _is_file(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise ValueError("no such file")
    return path


class BudgetFlags(BaseModel):
    """What a run may cost; no part of its identity."""

    max_gpu_hours: Annotated[
        float | None, Flag("cluster", _MAX_GPU_HOURS, metavar="H"), Field(gt=0, allow_inf_nan=False)
    ] = None
    hardware: Annotated[Path | None, Flag("cluster", _HARDWARE, metavar="FILE"), AfterValidator(_is_file)] = None
