"""Measure the size of a report of a whole evaluation, and how fast it opens:

    python -m tests.warehouse.report.measure FOLDER [PROBLEMS SAMPLES STEPS]

Writes a speculative and a vanilla run (500 problems × 16 samples, 30 steps of some 60 tokens, two candidates a step)
of made-up words into FOLDER, loads them, writes the page, opens it in Chromium and prints sizes and times. What is
already in FOLDER is not made again.
"""

from __future__ import annotations

import random
import string
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from harness.problems.problem import Problem, dataset_hash
from harness.trace import Candidate, Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, Unit, units
from tests.warehouse import runs
from tests.warehouse.report.browser import started
from warehouse.load import load_run
from warehouse.report.__main__ import main

_PART = 1000


def measure(where: Path, num_problems: int, samples: int, num_steps: int) -> None:
    """Print the table."""
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(4000)]
    problems = [Problem(f"toy/{i}", "toy", _text(draw, words, 50), str(i)) for i in range(num_problems)]
    database = where / "warehouse.duckdb"
    names = []
    for spec in (runs.SPEC, runs.VANILLA):
        whole = replace(
            spec,
            dataset_hash=dataset_hash(problems),
            num_problems=num_problems,
            dataset_size=num_problems,
            samples=samples,
        )
        folder = _run(where, whole, problems, words, num_steps)
        load_run(folder, database)
        names.append(folder.path.name)
    page, before = where / "report.html", time.perf_counter()
    result = CliRunner().invoke(main, [*names, "--database", str(database), "-o", str(page)])
    print(result.output.strip())
    print(f"written in {time.perf_counter() - before:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
    _open(page)


def _open(page: Path) -> None:
    with started() as browser:
        for _ in range(3):
            before = time.perf_counter()
            browser.open(page)
            print(f"opened, first trace shown, in {time.perf_counter() - before:.2f} s")
        before = time.perf_counter()
        browser.choose("order", "longest")
        print(f"sorted and another trace shown in {time.perf_counter() - before:.2f} s")


def _run(where: Path, spec: RunSpec, problems: list[Problem], words: list[str], num_steps: int) -> RunFolder:
    folder = RunFolder(where / spec.run_id)
    planned = units(spec, problems)
    if not folder.exists():
        folder.create(spec, problems, [planned])
    for start in range(0, len(planned), _PART):
        name, part = f"a{start:06d}", planned[start : start + _PART]
        if not (folder.trace_files_dir / f"{name}.parquet").exists():
            draw = random.Random(start)
            runs.write_part(folder, [_trace(unit, draw, words, num_steps) for unit in part], name)
    draw = random.Random(1)
    verdicts = {unit.sample_id: draw.choice(("correct", "correct", "wrong", "truncated")) for unit in planned}
    runs.write_grades(folder, verdicts)
    return folder


def _trace(unit: Unit, draw: random.Random, words: Sequence[str], num_steps: int) -> Trace:
    trace = runs.speculative(unit, latency=draw.uniform(5, 50))
    first, second, last = trace.steps
    steps = []
    for i in range(num_steps):
        refused = draw.random() < 0.3
        text = _text(draw, words, 40)
        candidates = [Candidate(text, 60, "stop", -0.5, 0, accepted=not refused)]
        candidates.append(Candidate(_text(draw, words, 40), 60, "stop", -0.7, 1))
        verdict = runs.choice(2, False, (0.1, 0.2, 0.5)) if refused else runs.choice(0, True)
        steps.append(
            replace(second, author="target" if refused else "draft", text=text, candidates=candidates, verdict=verdict)
        )
        trace.calls += [runs.call("draft", "draft", i + 1, 120, n=2), runs.call("verdict", "target", i + 1, 1)]
    trace.steps = [first, *steps, last]
    return trace


def _text(draw: random.Random, words: Sequence[str], count: int) -> str:
    return " ".join(draw.choices(words, k=count)) + "\n\n"


if __name__ == "__main__":
    measure(Path(sys.argv[1]), *(int(a) for a in sys.argv[2:5] or ("500", "16", "30")))
