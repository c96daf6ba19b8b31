"""The command line of the chaos loop: rounds, the record by which it goes on, and the table at the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from jobs.run.folder import run_folders
from tools.chaos.comparison import Content, content, differences, summary
from tools.chaos.disturbed_run import SCRIPTED, DisturbedRun, build
from tools.chaos.kinds import EVERYWHERE, ON_SLURM, Strike, night_command

_LIMIT_SECONDS = 1200.0
"""Longest time of a round without a kill after which it counts as stuck."""
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

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.library = build(self.folder)
        self.record = self.folder / "chaos.jsonl"

    def events(self) -> list[dict[str, Any]]:
        """Return what was recorded: strikes and rounds that ended."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def note(self, **event: Any) -> None:
        """Record an event."""
        with self.record.open("a") as record:
            record.write(json.dumps({"at": time.time(), **event}) + "\n")

    def num_kills(self) -> int:
        """Return how often something was struck."""
        return sum("kind" in event and event["struck"] for event in self.events())

    def undisturbed(self) -> Content:
        """Return the content of the run without disturbances, which is made once, on this machine."""
        calm = DisturbedRun(self.folder / "undisturbed", self.library, False, 0.0, self.flags)
        if calm.run is None or calm.num_finished() < calm.num_planned() or not calm.database.exists():
            calm.wait(calm.launch())
        assert calm.run is not None, (self.folder / "undisturbed" / "commands.log").read_text()
        return content(calm.run, calm.database)

    def rounds(self, kills: int) -> Iterator[list[str]]:
        """Run rounds until there were so many kills, at least one; yields what differs after each."""
        expected = self.undisturbed()
        while (number := sum("round" in event for event in self.events())) == 0 or self.num_kills() < kills:
            yield self.round(number, min(kills - self.num_kills(), self.kills_per_round), expected)

    def round(self, number: int, kills: int, expected: Content) -> list[str]:
        """Kill one run until it is finished, compare it, and record the result; its folder stays where it differs."""
        dice = random.Random(f"{self.seed}.{number}.{self.num_kills()}")  # goes on elsewhere after an interruption
        run = DisturbedRun(
            self.folder / f"round-{number}", self.library, self.on_slurm, self.seconds_per_call, self.flags
        )
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

    def night(self) -> list[str]:
        """Bring the night to its end and compare it with an undisturbed one; returns what differs."""
        if not any(event.get("kind") == "night and its verdict" for event in self.events()):
            return []
        found: list[Content] = []
        lines: list[str] = []
        for name in ("night", "undisturbed-night"):
            folder = self.folder / name
            environment = {**os.environ, "SLURM_CONF": "/nowhere"}
            command = [sys.executable, "-m", *night_command(folder)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != _NIGHT_CODE:
                lines.append(f"{name}: exit code {done.returncode} instead of {_NIGHT_CODE}: {done.stderr[-300:]}")
            runs = sorted(run_folders([folder / "runs"]), key=lambda run: run.path.name)
            found.append(_together([content(run, folder / "runs" / "warehouse.duckdb") for run in runs]))
        return lines + [f"night: {line}" for line in differences(*found)]

    def table(self) -> str:
        """Return the table by kind, and the sums over all rounds."""
        events = self.events()
        strikes = Counter(event["kind"] for event in events if event.get("struck"))
        missed = Counter(event["kind"] for event in events if event.get("struck") is False)
        rounds = [event for event in events if "round" in event]
        hit = {kind: {event["of_round"] for event in events if event.get("kind") == kind} for kind in self.kinds}
        lines = [
            "| kind | kills | nothing to kill | rounds | of these lost or doubled samples |",
            "|---|---|---|---|---|",
        ]
        for kind in [*self.kinds, *sorted(strikes.keys() - self.kinds.keys())]:
            bad = sum(bool(r.get("lost") or r.get("doubled")) for r in rounds if r["round"] in hit.get(kind, ()))
            lines.append(f"| {kind} | {strikes[kind]} | {missed[kind]} | {len(hit.get(kind, ()))} | {bad} |")
        lost, doubled = (sum(event.get(name, 0) for event in rounds) for name in ("lost", "doubled"))
        num_samples = sum(event.get("samples", 0) for event in rounds)
        refusals = Counter(line.split(":")[0] for event in rounds for line in event["refusals"])
        different = sum(bool(event["differences"]) for event in rounds)
        lines += [
            "",
            f"{strikes.total()} kills in {len(rounds)} rounds, {num_samples} samples: {lost} lost, {doubled} doubled; "
            f"{different} rounds differ from the undisturbed run in texts, pass@1 or rows of the warehouse",
            f"commands that nobody killed and that failed: {dict(refusals) or 'none'}",
        ]
        return "\n".join(lines)


def _together(contents: Sequence[Content]) -> Content:
    rows = {f"{number} {name}": rows for number, c in enumerate(contents) for name, rows in c.rows.items()}
    texts = {sample: text for c in contents for sample, text in c.texts.items()}
    lost, doubled = (sum(getattr(c, name) for c in contents) for name in ("lost", "doubled"))
    return Content(texts, tuple(c.pass_at_1 for c in contents), rows, lost, doubled)


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--kills", type=click.IntRange(1), default=100, help="Number of kills in all, over all rounds.")
@click.option("--seed", type=int, default=1, help="Seed of kinds, targets and pauses.")
@click.option("--kills-per-round", type=click.IntRange(1), default=50, help="Most kills of one run.")
@click.option("--samples", type=click.IntRange(1), default=4, help="Samples of each of the demo's 40 problems.")
@click.option("--shards", type=click.IntRange(1), default=4, help="Shards of the run.")
@click.option("--seconds-per-call", type=float, default=0.3, help="Duration of a call of a scripted engine.")
@click.option("--pause", type=float, default=0.5, help="Average seconds between two kills.")
@click.option("--kind", "chosen", multiple=True, help="Only these kinds.  [default: all that fit the place]")
@click.option("--here", is_flag=True, help="Processes of this machine, even where SLURM_CONF names the local cluster.")
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
    further: tuple[str, ...],
) -> None:
    """Kill what works on runs in FOLDER until there were enough kills; the same command goes on.

    Exit code 0: every round ended like the undisturbed run; 1: one did not, and its folder is kept.
    """
    conf = Path(os.environ.get("SLURM_CONF", ""))
    on_slurm = not here and (conf.parent / "cluster.json").exists()
    kinds = {**EVERYWHERE, **(ON_SLURM if on_slurm else {})}
    if unknown := set(chosen) - kinds.keys():
        raise click.UsageError(f"--kind {', '.join(sorted(unknown))}; valid: {', '.join(kinds)}")
    has_engines = any("engine" in flag for flag in further)  # scripted engines are no processes
    kinds = {
        name: strike
        for name, strike in kinds.items()
        if (name in chosen if chosen else has_engines or not name.startswith("engine"))
    }
    flags = [*SCRIPTED, "--samples", str(samples), "--shards", str(shards), *further]
    loop = Loop(folder.absolute(), kinds, on_slurm, seed, flags, seconds_per_call, pause, kills_per_round)
    differ = False
    for found in loop.rounds(kills):
        click.echo(f"{time.strftime('%H:%M:%S')}  {loop.num_kills()} kills; {'; '.join(found) or 'equal'}", err=True)
        differ |= bool(found)
    if of_night := loop.night():
        click.echo("\n".join(of_night), err=True)
    click.echo(loop.table())
    sys.exit(differ or bool(of_night))


if __name__ == "__main__":
    main(prog_name="python -m tools.chaos")
