"""Command line of the chaos loop: rounds, the log used for resuming, and the final table."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from jobs.run.folder import run_folders
from tools.chaos.comparison import Content, content, differences, summary
from tools.chaos.disturbed_run import SCRIPTED, DisturbedRun, build, make_shared, start
from tools.chaos.kinds import EVERYWHERE, ON_SLURM, Strike, beside, command_beside

_LIMIT_SECONDS = 1200.0
"""Maximum time without a kill before a round counts as stuck."""
_NIGHT_CODE = 4
"""Exit code of a first night: INCONCLUSIVE."""


@dataclass
class Loop:
    """The chaos loop in a folder."""

    folder: Path
    kinds: dict[str, Strike]
    on_slurm: bool
    seed: int
    flags: Sequence[str]
    seconds_per_call: float
    pause_seconds: float
    kills_per_round: int
    users: Sequence[int] = ()

    def __post_init__(self) -> None:
        make_shared(self.folder, self.users)
        self.library = build(self.folder)
        self.record = self.folder / "chaos.jsonl"

    def events(self) -> list[dict[str, Any]]:
        """Return the recorded kills and finished rounds."""
        return events_in(self.record)

    def note(self, **event: Any) -> None:
        """Record an event."""
        with self.record.open("a") as record:
            record.write(json.dumps({"at": time.time(), **event}) + "\n")

    def num_kills(self) -> int:
        """Return the number of disturbances that found a target."""
        return sum("kind" in event and event["struck"] for event in self.events())

    def undisturbed(self) -> Content:
        """Return the content of the undisturbed run, which is run once, on this machine."""
        calm = DisturbedRun(self.folder / "undisturbed", self.library, False, 0.0, self.flags, self.users)
        if calm.run is None or calm.num_finished() < calm.num_planned() or not calm.database.exists():
            calm.wait(calm.launch())
        assert calm.run is not None, (self.folder / "undisturbed" / "commands.log").read_text()
        return content(calm.run, calm.database)

    def rounds(self, kills: int) -> Iterator[list[str]]:
        """Run rounds, at least one, until there were at least `kills` kills; yield each round's differences."""
        expected = self.undisturbed()
        while (number := sum("round" in event for event in self.events())) == 0 or self.num_kills() < kills:
            yield self.round(number, min(kills - self.num_kills(), self.kills_per_round), expected)

    def round(self, number: int, kills: int, expected: Content) -> list[str]:
        """Disturb one run until it is finished, compare it with the undisturbed run, and record and return the
        differences. The run's folder is kept if there are any.
        """
        dice = random.Random(
            f"{self.seed}.{number}.{self.num_kills()}"
        )  # after an interruption, the round continues with other random choices
        folder = self.folder / f"round-{number}"
        run = DisturbedRun(folder, self.library, self.on_slurm, self.seconds_per_call, self.flags, self.users)
        try:
            found = self._disturb(run, number, kills, dice)
            run.conclude(_LIMIT_SECONDS)
            assert run.run is not None
            ended = content(run.run, run.database)
            found += differences(ended, expected)
        except TimeoutError as error:
            found, ended = [str(error)], None
        finally:
            run.end()
        self.note(round=number, differences=found, refusals=run.refusals, **(summary(ended) if ended else {}))
        if not found:
            shutil.rmtree(run.folder, ignore_errors=True)
        return found

    def _disturb(self, run: DisturbedRun, number: int, kills: int, dice: random.Random) -> list[str]:
        run.go_on()
        num_struck, deadline = 0, time.monotonic() + _LIMIT_SECONDS
        while run.num_finished() < run.num_planned():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{run.folder}: not finished {_LIMIT_SECONDS:g} s after the last kill")
            time.sleep(dice.uniform(0.2, 1.8) * self.pause_seconds)
            if num_struck < kills:
                kind = dice.choice(sorted(self.kinds))
                try:
                    struck = self.kinds[kind](run, dice)
                except (OSError, subprocess.SubprocessError) as error:
                    run.refusals.append(f"{kind}: {error}")
                    struck = False
                self.note(kind=kind, struck=struck, of_round=number, finished=run.num_finished())
                num_struck += struck
                deadline = time.monotonic() + _LIMIT_SECONDS if struck else deadline
            else:
                run.calm()
            run.go_on()
        return []

    def beside(self) -> Iterator[str]:
        """Finish suites and nights, and yield the differences from undisturbed ones."""
        for kind, exit_code in (("suite", 0), ("night", _NIGHT_CODE), ("slurm-night", _NIGHT_CODE)):
            folders = sorted(self.folder.glob(f"{kind}-*"))
            if not folders:
                continue
            calm_kind = kind.removeprefix("slurm-")
            expected, lines = self._concluded(beside(self.folder / "undisturbed", calm_kind, self.users), exit_code)
            yield from lines
            for folder in folders:
                found, lines = self._concluded(folder, exit_code)
                yield from (f"{folder.name}: {line}" for line in [*lines, *differences(found, expected)])

    def _concluded(self, folder: Path, exit_code: int) -> tuple[Content, list[str]]:
        """Finish the runs of a folder outside the rounds, undisturbed; return their content, and an error line if the
        exit code is wrong.
        """
        is_on_slurm = folder.name.startswith("slurm-")
        environment = os.environ if is_on_slurm else {**os.environ, "SLURM_CONF": "/nowhere"}
        command = [*command_beside(folder), *(["--wait"] if is_on_slurm else [])]
        code = start(folder, environment, self.users, *command).wait(_LIMIT_SECONDS)
        log = (folder / "commands.log").read_text(errors="replace")
        lines = [] if code == exit_code else [f"exit code {code} instead of {exit_code}: {log[-300:]}"]
        runs = sorted(run_folders([folder / "runs"]), key=lambda run: run.path.name)
        return _together([content(run, folder / "runs" / "warehouse.duckdb") for run in runs]), lines


def events_in(record: Path) -> list[dict[str, Any]]:
    """Return the recorded kills and finished rounds of a loop."""
    lines = record.read_text().splitlines() if record.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def table(events: Sequence[Mapping[str, Any]], kinds: Iterable[str]) -> str:
    """Return the table by kind, and the sums over all rounds."""
    strikes = Counter(event["kind"] for event in events if event.get("struck"))
    missed = Counter(event["kind"] for event in events if event.get("struck") is False)
    rounds = {(event.get("loop"), event["round"]): event for event in events if "round" in event}
    lines = [
        "| kind | kills | nothing to kill | rounds | rounds with lost or doubled samples |",
        "|---|---|---|---|---|",
    ]
    for kind in (kind for kind in kinds if kind in strikes | missed):
        hit = {(event.get("loop"), event["of_round"]) for event in events if event.get("kind") == kind}
        bad = sum(bool(rounds[number].get("lost") or rounds[number].get("doubled")) for number in hit & rounds.keys())
        lines.append(f"| {kind} | {strikes[kind]} | {missed[kind]} | {len(hit)} | {bad} |")
    lost, doubled, num_samples = (
        sum(event.get(name, 0) for event in rounds.values()) for name in ("lost", "doubled", "samples")
    )
    refusals = Counter(line.split(":")[0] for event in rounds.values() for line in event["refusals"])
    different = sum(bool(event["differences"]) for event in rounds.values())
    lines += [
        "",
        f"{strikes.total()} kills in {len(rounds)} rounds, {num_samples} samples: {lost} lost, {doubled} doubled; "
        f"{different} rounds differ from the undisturbed run in texts, pass@1 or rows of the warehouse",
        f"commands that failed without being killed: {dict(refusals) or 'none'}",
    ]
    return "\n".join(lines)


def _together(contents: Sequence[Content]) -> Content:
    rows = {f"{number} {name}": rows for number, c in enumerate(contents) for name, rows in c.rows.items()}
    texts = {sample: text for c in contents for sample, text in c.texts.items()}
    lost, doubled = (sum(getattr(c, name) for c in contents) for name in ("lost", "doubled"))
    return Content(texts, tuple(c.pass_at_1 for c in contents), rows, lost, doubled)


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--kills", type=click.IntRange(1), default=100, help="Total number of kills over all rounds.")
@click.option("--seed", type=int, default=1, help="Seed for the choice of kinds, targets and pauses.")
@click.option("--kills-per-round", type=click.IntRange(1), default=50, help="Maximum number of kills per run.")
@click.option("--samples", type=click.IntRange(1), default=4, help="Samples of each of the demo's 40 problems.")
@click.option("--shards", type=click.IntRange(1), default=4, help="Shards of the run.")
@click.option("--seconds-per-call", type=float, default=0.3, help="Duration of a scripted engine's call, in seconds.")
@click.option("--pause", type=float, default=0.5, help="Average seconds between two kills.")
@click.option(
    "--kind",
    "chosen",
    multiple=True,
    help="Use only this kind of disturbance; can be repeated.  [default: all kinds that are possible]",
)
@click.option(
    "--here", is_flag=True, help="Use processes on this machine, even if SLURM_CONF is set to the local cluster."
)
@click.option("--loops", type=click.IntRange(1), default=1, help="Number of parallel loops, in folders below FOLDER.")
@click.option(
    "--user",
    "users",
    type=int,
    multiple=True,
    help="Id of a user who starts commands; if repeated, the users take turns. Requires root, and a Python that these "
    "users may run.",
)
@click.option("--launch", "further", multiple=True, help="Further flags of the launch, such as --launch=--engine=vllm.")
def main(
    folder: Path,
    kills: int,
    seed: int,
    kills_per_round: int,
    samples: int,
    shards: int,
    seconds_per_call: float,
    pause: float,
    chosen: tuple[str, ...],
    here: bool,
    loops: int,
    users: tuple[int, ...],
    further: tuple[str, ...],
) -> None:
    """Kill processes that work on runs in FOLDER until there were enough kills. The same command resumes.

    Exit code 0: every round ended like the undisturbed run; 1: one did not, and its folder is kept.
    """
    if loops > 1:
        sys.exit(_side_by_side(folder.absolute(), loops, kills, seed))
    logging.getLogger("jobs.run.files").setLevel(logging.ERROR)  # the warnings are about damage, caused on purpose
    conf = Path(os.environ.get("SLURM_CONF", ""))
    on_slurm = not here and (conf.parent / "cluster.json").exists()
    kinds = {**EVERYWHERE, **(ON_SLURM if on_slurm else {})}
    if unknown := set(chosen) - kinds.keys():
        raise click.UsageError(f"--kind {', '.join(sorted(unknown))}; valid: {', '.join(kinds)}")
    has_engines = any("engine" in flag for flag in further)  # scripted engines have no processes
    kinds = {
        name: strike
        for name, strike in kinds.items()
        if (name in chosen if chosen else has_engines or not name.startswith("engine"))
    }
    flags = [*SCRIPTED, "--samples", str(samples), "--shards", str(shards), *further]
    loop = Loop(folder.absolute(), kinds, on_slurm, seed, flags, seconds_per_call, pause, kills_per_round, users)
    differ = False
    for found in loop.rounds(kills):
        click.echo(f"{time.strftime('%H:%M:%S')}  {loop.num_kills()} kills; {'; '.join(found) or 'equal'}", err=True)
        differ |= bool(found)
    for line in loop.beside():
        click.echo(line, err=True)
        differ = True
    click.echo(table(loop.events(), kinds))
    sys.exit(differ)


def _side_by_side(folder: Path, loops: int, kills: int, seed: int) -> int:
    """Run the command in several folders at once, and print one table of all loops; return the exit code."""
    commands = []
    for number in range(loops):
        share = ["--loops", "1", "--kills", str(-(-kills // loops)), "--seed", str(seed * 100 + number)]
        command = [sys.executable, "-m", "tools.chaos", str(folder / f"loop-{number}"), *sys.argv[2:], *share]
        commands.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    code = max(command.wait() for command in commands)
    events: list[dict[str, Any]] = []
    for path in sorted(folder.glob("loop-*/chaos.jsonl")):
        events += [{**event, "loop": path.parent.name} for event in events_in(path)]
    click.echo(table(events, {**EVERYWHERE, **ON_SLURM}))
    return code


if __name__ == "__main__":
    main(prog_name="python -m tools.chaos")
