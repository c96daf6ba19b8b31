"""Send the result of a finished run to an experiment tracker: `launch --tracker mlflow`, or `wandb`.

The tracker's own environment variables set its location and credentials. A run is a single entry, even if it is sent
several times. No other module imports mlflow or wandb.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import orjson

from harness.cli.program import typed
from jobs.outcome import LaunchFailed
from jobs.run.folder import RunFolder

PROJECT = "speculative-reasoning"
"""Name of the experiment or project, unless set by MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT."""
_ENDINGS = {"value": "", "low_95": "_low_95", "high_95": "_high_95", "standard_error": "_standard_error"}
_PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}


def check(tracker: str) -> None:
    """Raise ValueError if a tracker's package is not installed."""
    if tracker not in sys.modules and importlib.util.find_spec(tracker) is None:
        raise ValueError(f"--tracker {tracker}: the package is not installed: pip install {_PACKAGES[tracker]}")


def send(run: RunFolder, tracker: str) -> None:
    """Send `results.json`: settings as parameters, numbers as metrics; with MLflow also the file itself.

    Raises LaunchFailed.
    """
    try:
        results = orjson.loads(run.results_path.read_bytes())
        parameters, metrics = split(results)
    except (OSError, ValueError, AttributeError, KeyError, TypeError, OverflowError) as error:
        raise LaunchFailed(
            f"{run.path.name} was not sent to {tracker}: {run.results_path} is absent or damaged ({error}); "
            f"to write it again: {typed('jobs finalize')} {quote(str(run.path))}"
        ) from error
    try:
        with contextlib.redirect_stdout(sys.stderr):  # mlflow prints the entry's address
            {"mlflow": _mlflow, "wandb": _wandb}[tracker](run.path.name, parameters, metrics, run.results_path)
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise LaunchFailed(
            f"{run.path.name} is finished, but was not sent to {tracker} ({type(error).__name__}: {line}). To send it, "
            "run the same command again"
        ) from error


def split(results: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, float]]:
    """Split a result into settings and metrics with flat names such as params.drafts and verdicts.wrong."""
    parameters: dict[str, str] = {}
    metrics: dict[str, float] = {}
    settings = {"schema_version", "seed", "temperature", "top_p", "token_budget", "concurrency", "dataset_size"}
    for name, value in _flat(results):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and name not in settings and not name.startswith("params."):
            metrics[name] = float(value)
        elif value is not None:
            parameters[name] = str(value)
    return parameters, metrics


def _flat(results: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return flat names and values; suffixes name the interval limits and standard error of a measure."""
    found: list[tuple[str, Any]] = []
    for name, value in results.items():
        if name in ("measures", "by_role"):
            found += _flat(value, prefix)
        elif name == "against":
            for pair in value:
                base = pair["baseline_run_id"]
                found += _flat({key: of for key, of in pair.items() if key != "baseline_run_id"}, f"against.{base}.")
        elif isinstance(value, Mapping) and "value" in value:
            found += [(f"{prefix}{name}{end}", value.get(key)) for key, end in _ENDINGS.items()]
        elif isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            found.append((prefix + name, value))
    return found


def _mlflow(name: str, parameters: Mapping[str, str], metrics: Mapping[str, float], file: Path) -> None:
    import mlflow

    experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    earlier = mlflow.search_runs(
        [experiment.experiment_id], filter_string=f"tags.run_id = '{name}'", max_results=1, output_format="list"
    )
    known = {"run_id": earlier[0].info.run_id} if earlier else {"run_name": name, "tags": {"run_id": name}}
    with mlflow.start_run(**known):
        new = {key: value for key, value in parameters.items() if not earlier or key not in earlier[0].data.params}
        mlflow.log_params(new)
        mlflow.log_metrics(dict(metrics))
        mlflow.log_artifact(str(file))


def _wandb(name: str, parameters: Mapping[str, str], metrics: Mapping[str, float], file: Path) -> None:
    import wandb

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    entry = wandb.init(project=project, id=name, name=name, resume="allow", config=dict(parameters))
    entry.summary.update(dict(metrics))
    entry.finish()
