"""A suite of one's own for tests: its file with a method, a dataset and prompts, and its runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from harness import reproduce
from tests.own_methods import write_method

HOSTILE = r"A_b & 50% of \input{x} #~^{}$ <b>|"
HOSTILE_IN_LATEX = (
    r"A\_b \& 50\% of \textbackslash{}input\{x\} \#\textasciitilde{}\textasciicircum{}\{\}\$ "
    r"\textless{}b\textgreater{}\textbar{}"
)
SUITE = """
engine = "scripted"
cluster = "debug"
dataset = ["demo", "sums.jsonl"]
limit = 3
samples = 2

[[run]]
method = "vanilla"
model = "target"

[[run]]
method = "speccot"
drafts = [2, 3]

[[run]]
method = "confident.py:Confident"
dataset = "sums.jsonl"
prompts = "mine.toml"
row = '[HOSTILE]'
"""


@dataclass
class Made:
    """A suite's file, and the folder of its runs."""

    file: Path
    output: Path

    def reproduce(self, *words: str) -> Result:
        command = [str(self.file), "--output", str(self.output), *words]
        return CliRunner(env={"COLUMNS": "2000"}).invoke(reproduce.main, command)


def write_suite(folder: Path) -> Path:
    write_method(folder)
    problems = [{"problem": f"What is {i} + {i}?", "answer": 2 * i} for i in range(1, 7)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, problems)))
    (folder / "mine.toml").write_text('answer_bridge = "So it is: "\n')
    file = folder / "mine_&.toml"
    file.write_text(SUITE.replace("[HOSTILE]", HOSTILE), "utf-8")
    return file
