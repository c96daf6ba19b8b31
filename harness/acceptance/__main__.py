"""`python -m harness.acceptance`: test this machine with real engines.

Starts the engines, asks them everything that a run asks, kills workers and engines, and compares what comes out with
the goals, in ten minutes on a GPU and without network. Exit code 0: nothing failed, 1: something did, 2: the flags are
wrong.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import click

from harness import environment
from harness.acceptance import report
from harness.acceptance.catalog import CHECKS, Check, Device, Kind, chosen
from harness.acceptance.outcome import Outcome
from harness.acceptance.plan import SMALL, Plan, PlannedModel, Sizes
from harness.acceptance.supervision import Supervisor
from harness.cli.command import OneLineErrors, OutputFile
from harness.weights import models

_EXAMPLES = """\b
Examples:
  python -m harness.acceptance
  python -m harness.acceptance --engine transformers
  python -m harness.acceptance --only start,verdicts --output start.json
"""


def _names(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


@click.command(cls=OneLineErrors, context_settings={"show_default": True}, epilog=_EXAMPLES)
@click.option(
    "--draft",
    metavar="MODEL",
    default="demo-draft",
    help="Draft model: a known name, a Hugging Face id in the cache, or a folder.",
)
@click.option("--target", metavar="MODEL", default="demo-target", help="Target model, in the same forms.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "vllm", "transformers"]),
    default="auto",
    help="Inference engine. auto: vLLM if it is installed, otherwise transformers.",
)
@click.option("--only", metavar="CHECK,…", callback=_names, help="Make only these checks (see --list).")
@click.option("--skip", metavar="CHECK,…", callback=_names, help="Leave these checks out.")
@click.option("--quick", is_flag=True, help="Small numbers, and only the checks that need few engine starts.")
@click.option(
    "--time-limit", type=click.FloatRange(1), metavar="SECONDS",
    help="Time that any check may take, engine starts included, e.g. for large models.  "
    "[default: one to five minutes by check, and seven more where engines start]",
)  # fmt: skip
@click.option(
    "--output", type=OutputFile(".json"), default="acceptance.json",
    help="The results as JSON: send this file with a bug report.",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print the checks with their goals, and exit.")
def main(
    draft: str,
    target: str,
    engine: str,
    only: list[str] | None,
    skip: list[str] | None,
    quick: bool,
    time_limit: float | None,
    output: Path,
    listing: bool,
) -> int:
    """Test this machine with real engines: they start, answer, are lossless, and leave nothing behind.

    Prints a line per check: what was measured, the goal, and PASS, FAIL or SKIPPED.
    """
    if listing:
        _print_list()
        return 0
    try:
        checks = chosen(only, skip or ())
        if not checks:
            raise ValueError(f"--only and --skip leave no check; there are {', '.join(CHECKS)}")
        plan = _plan(engine, draft, target, quick=quick)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    options = {"quick": quick, "only": only, "skip": skip, "time_limit": time_limit}
    outcomes = _run(checks, plan, options, output)
    failed = any(outcome.status == "FAIL" for outcome in outcomes)
    if failed:
        click.echo(f"logs: {plan.work}", err=True)
    else:
        shutil.rmtree(plan.work, ignore_errors=True)
    return int(failed)


def _run(checks: list[Check], plan: Plan, options: Mapping[str, Any], output: Path) -> list[Outcome]:
    """Make the checks; print each outcome and write all of them as they come."""
    begun, work = time.monotonic(), Path(plan.work)
    private = report.private_words(work)
    outcomes: list[Outcome] = []
    click.echo(report.heading())
    for outcome in _outcomes(checks, plan, options):
        outcomes.append(outcome)
        click.echo(report.redacted(report.line(outcome), private))
        for text in outcome.log:
            click.echo(f"    {text}", err=True)
        report.write(output, report.document(plan, options, outcomes, time.monotonic() - begun), private)
    click.echo(f"{report.summary(outcomes, time.monotonic() - begun)}; {output}")
    return outcomes


def _outcomes(checks: list[Check], plan: Plan, options: Mapping[str, Any]) -> Iterator[Outcome]:
    """Yield the outcome of each check, in their order."""
    reasons = {check.name: check.skip_reason(plan.kind, plan.device, quick=options["quick"]) for check in checks}
    supervisor = Supervisor(plan, _say, options["time_limit"])
    made = supervisor.run([check for check in checks if reasons[check.name] is None])
    for check in checks:
        reason = reasons[check.name]
        yield next(made) if reason is None else Outcome(check.name, "SKIPPED", reason)


def _plan(engine: str, draft: str, target: str, *, quick: bool) -> Plan:
    """Return what is to be checked, with a new folder for it. Raises ValueError and ModelUnavailable."""
    kind, device = _kind(engine), environment.accelerator()
    is_bundled = (draft.lower(), target.lower()) == tuple(models.PAIR)
    planned_draft, planned_target = _model(draft), _model(target)
    work = tempfile.mkdtemp(prefix="harness-acceptance-")
    return Plan(kind, device, planned_draft, planned_target, is_bundled, _sizes(kind, device, quick=quick), work)


def _sizes(kind: Kind, device: Device, *, quick: bool) -> Sizes:
    """Return small numbers with `--quick`, on a CPU, and for the transformers engine, which serves one at a time."""
    if kind == "transformers":
        return replace(SMALL, run_method="speccot")  # its engines start in a second
    return SMALL if quick or device == "cpu" else Sizes()


def _kind(engine: str) -> Kind:
    """Return the engine to test. Raises ValueError where it is not installed."""
    has = {kind: find_spec(kind) is not None for kind in ("vllm", "transformers")}
    kind = ("vllm" if has["vllm"] else "transformers") if engine == "auto" else engine
    if not has[kind] or find_spec("torch") is None:
        installed = ", ".join(name for name, is_here in has.items() if is_here) or "none"
        raise ValueError(f"--engine {kind} is not installed here with torch; installed: {installed}")
    return cast(Kind, kind)


def _model(name: str) -> PlannedModel:
    reference = models.resolve(name)
    return PlannedModel(reference.name, reference.path_or_hub_id, reference.revision)


def _print_list() -> None:
    for check in CHECKS.values():
        applies = [text for text in (check.without_vllm and "vLLM only", check.on_cpu and "GPU only") if text]
        restriction = f" ({', '.join(applies)})" if applies else ""
        click.echo(f"{check.name:17} {check.shows}{restriction}")
        click.echo(f"{'':17} goal: {check.goal}")


def _say(text: str) -> None:
    click.echo(f"[{time.strftime('%H:%M:%S')}] {text}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m harness.acceptance")
