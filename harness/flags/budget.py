"""What a run may cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from harness.launch_flags import Flag

_MAX_GPU_HOURS = (
    "Refuse to begin where the estimate is above H GPU-hours, or where there is none. Without GPUs: hours of workers."
)


class BudgetFlags(BaseModel):
    """What a run may cost; no part of its identity."""

    max_gpu_hours: Annotated[
        float | None, Flag("cluster", _MAX_GPU_HOURS, metavar="H"), Field(gt=0, allow_inf_nan=False)
    ] = None
