"""The page's questions about traces, problems and verdicts: their answers in a made-up warehouse, counted by hand.

speccot fails toy/0 (easy) and toy/2 (hard), which vanilla solves, and solves toy/1 (easy), which vanilla fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.trace import Candidate, Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import Unit
from tests.warehouse import runs
from warehouse import database
from warehouse.database import reader
from warehouse.loading.runs import load_run

PAGE = (Path(database.__file__).parent / "QUESTIONS.md").read_text(encoding="utf-8")
QUESTIONS = [
    (section.partition("\n")[0], sql)
    for section in PAGE.split("\n## ")[1:]
    for sql in re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
]
"""Every question of the page with its SQL."""
DECISIONS = {
    ("toy/0", 0): (True, False, False, True),
    ("toy/0", 1): (False, True),
    ("toy/1", 0): (True, True),
    ("toy/1", 1): (True, False),
    ("toy/2", 0): (True,),
    ("toy/2", 1): (False,),
}
"""Whether the target accepted each draft of a chain, by problem and sample."""
VERDICTS = {"toy/0": ("wrong", "wrong"), "toy/1": ("correct", "correct"), "toy/2": ("wrong", "truncated")}
OF_VANILLA = {"toy/0": ("correct", "correct"), "toy/1": ("wrong", "correct"), "toy/2": ("correct", "correct")}


def chain(unit: Unit) -> Trace:
    """A drafted step of 6 tokens per decision and an answer of 4; a verdict takes 1 s, a fallback 3 s."""
    trace = runs.speculative(unit, latency=10.0 + unit.sample_index)
    decisions = DECISIONS[unit.problem_id, unit.sample_index]
    trace.steps, trace.calls = [], []
    for i, accepted in enumerate(decisions):
        step = runs.step("draft" if accepted else "target", "draft" if accepted else "fallback", f"So {i}.\n", 6)
        step.candidates = [
            Candidate("a", 6, "stop", -0.5, 0, accepted=accepted),
            Candidate("b", 5, "stop", -1.5, 1),
        ]
        step.verdicts = [runs.choice(0, True) if accepted else runs.choice(2, False, (0.25, 0.25, 0.3))]
        trace.steps.append(step)
        trace.calls += [
            runs.call("draft", "draft", i, 11, n=2, longest=6, seconds=2.0),
            runs.call("verdict", "target", i, 1, seconds=1.0),
            *([] if accepted else [runs.call("fallback", "target", i, 6, seconds=3.0)]),
        ]
    trace.steps.append(runs.step("target", "answer", "\\boxed{2}", 4))
    trace.calls.append(runs.call("answer", "target", len(decisions), 4, seconds=1.5))
    return runs.ended(trace, "budget") if unit.problem_id == "toy/2" and unit.sample_index else trace


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder, RunFolder]:
    where = tmp_path_factory.mktemp("questions")
    speccot, vanilla = runs.create(where), runs.create(where, runs.VANILLA)
    for folder, verdicts in ((speccot, VERDICTS), (vanilla, OF_VANILLA)):
        units = runs.planned(folder)
        runs.write_part(folder, [chain(u) if folder is speccot else runs.vanilla(u) for u in units])
        runs.write_grades(folder, {u.sample_id: verdicts[u.problem_id][u.sample_index] for u in units})
        load_run(folder, where / "w.duckdb")
    return where / "w.duckdb", speccot, vanilla


SPECCOT, VANILLA = "speccot", "vanilla"
ANSWERS: dict[str, Sequence[tuple[object, ...]]] = {
    "Where speccot is wrong and vanilla right": [
        (SPECCOT, "easy", 0, 2, 0.5),  # both samples of toy/0, none of toy/1
        (SPECCOT, "easy", 1, 2, 0.5),
        (SPECCOT, "easy", 2, 1, 1.0),
        (SPECCOT, "easy", 3, 1, 0.0),
        (SPECCOT, "hard", 0, 2, 0.5),
    ],
    "On which levels does a method win": [(SPECCOT, VANILLA, "easy", 0, 1), (SPECCOT, VANILLA, "hard", 0, 1)],
    "Does the target reject more drafts": [
        (SPECCOT, "easy", False, 2, 6, 0.5),
        (SPECCOT, "easy", True, 2, 4, 0.25),
        (SPECCOT, "hard", False, 2, 2, 0.5),
    ],
    "Is the target less certain": [
        (SPECCOT, False, 0, 4, 0.5),  # twice 0.5 of 0.8, twice 0.3 of 0.8
        (SPECCOT, False, 1, 2, 0.5),
        (SPECCOT, False, 2, 1, 0.375),
        (SPECCOT, False, 3, 1, 0.625),
        (SPECCOT, True, 0, 2, 0.625),
        (SPECCOT, True, 1, 2, 0.5),
    ],
    "How long are the chains": [
        (SPECCOT, "easy", False, 2, 4.0, 22.0),  # 4 × 6 + 4 and 2 × 6 + 4 tokens
        (SPECCOT, "easy", True, 2, 3.0, 16.0),
        (SPECCOT, "hard", False, 2, 2.0, 10.0),
        (VANILLA, "easy", False, 1, 1.0, 40.0),
        (VANILLA, "easy", True, 3, 1.0, 40.0),
        (VANILLA, "hard", True, 2, 1.0, 40.0),
    ],
    "On which levels does the token budget": [
        (SPECCOT, "easy", 4, 0.0),
        (SPECCOT, "hard", 2, 0.5),
        (VANILLA, "easy", 4, 0.0),
        (VANILLA, "hard", 2, 0.0),
    ],
    "What does a problem of each level cost": [
        (SPECCOT, VANILLA, "easy", 2, 10.5, 20.0, 40.0, 40.0),  # (64 + 34 + 28 + 34) / 4 and so on
        (SPECCOT, VANILLA, "hard", 1, 10.5, 20.0, 19.0, 40.0),
    ],
    "Which calls take the time": [
        (SPECCOT, False, "answer", "target", 1.5),
        (SPECCOT, False, "draft", "draft", 4.0),  # 8 drafts of 2 s in 4 samples
        (SPECCOT, False, "fallback", "target", 3.0),
        (SPECCOT, False, "verdict", "target", 2.0),
        (SPECCOT, True, "answer", "target", 1.5),
        (SPECCOT, True, "draft", "draft", 4.0),
        (SPECCOT, True, "fallback", "target", 1.5),
        (SPECCOT, True, "verdict", "target", 2.0),
        (VANILLA, False, "chain", "target", 19.0),
        (VANILLA, True, "chain", "target", 19.0),
    ],
    "Did the draft model itself": [
        (SPECCOT, "easy", False, 14, -1.214),  # 10 of −1.5 and the 4 refused of −0.5
        (SPECCOT, "easy", True, 6, -0.5),
        (SPECCOT, "hard", False, 3, -1.167),
        (SPECCOT, "hard", True, 1, -0.5),
    ],
    "How much do more samples help": [
        (SPECCOT, 1, 3, 0.3333, None),
        (SPECCOT, 2, 3, 0.3333, 0.3333),
        (VANILLA, 1, 3, 0.8333, None),
        (VANILLA, 2, 3, 1.0, 0.8333),  # toy/1: a right and a wrong answer tie
    ],
    "Which problems are solved by some": [(VANILLA, "toy/1", "easy", 1, 2)],
}
"""By the first words of the question; run ids by method."""


@pytest.mark.parametrize("opening", ANSWERS)
def test_a_question_about_traces_has_the_answer_counted_by_hand(
    warehouse: tuple[Path, RunFolder, RunFolder], opening: str
) -> None:
    database, speccot, vanilla = warehouse
    [sql] = [sql for question, sql in QUESTIONS if question.startswith(opening)]
    names = {speccot.path.name: SPECCOT, vanilla.path.name: VANILLA}
    with reader(database) as connection:
        rows = connection.execute(sql).fetchall()
    found = [tuple(names.get(value, value) if isinstance(value, str) else value for value in row) for row in rows]
    assert sorted(found, key=str) == sorted(map(tuple, ANSWERS[opening]), key=str)


def test_a_join_of_flips_by_run_alone_would_count_other_problems_and_flip_sample_does_not(
    warehouse: tuple[Path, RunFolder, RunFolder],
) -> None:
    database, speccot, _ = warehouse
    by_run = "SELECT count(*) FROM step SEMI JOIN flips ON step.run_id = wrong_run_id WHERE verdict_kind IS NOT NULL"
    by_sample = """
        SELECT count(*), list(DISTINCT problem_id ORDER BY problem_id) FROM wide_step
        SEMI JOIN (FROM flip_sample WHERE side = 'wrong') AS flip USING (run_id, sample_id)
        WHERE verdict_kind IS NOT NULL AND run_id = ?
    """
    with reader(database) as connection:
        assert connection.execute(by_run).fetchall() == [(12,)]
        assert connection.execute(by_sample, [speccot.path.name]).fetchall() == [(8, ["toy/0", "toy/2"])]


@pytest.mark.parametrize("table", ["step", "candidate", "call"])
def test_a_wide_view_has_every_row_and_column_of_its_table_once(
    warehouse: tuple[Path, RunFolder, RunFolder], table: str
) -> None:
    database, wide = warehouse[0], f"wide_{table}"
    with reader(database) as connection:
        names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
        of_wide = f"SELECT {', '.join(names)} FROM {wide} ORDER BY ALL"
        assert connection.execute(of_wide).fetchall() == connection.execute(f"FROM {table} ORDER BY ALL").fetchall()
        assert {"problem_id", "level", "verdict"} <= {n for n, *_ in connection.execute(f"DESCRIBE {wide}").fetchall()}


def test_a_sample_without_a_grade_is_neither_right_nor_wrong_in_the_wide_views(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit) for unit in units[:-1]])
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in units[:1]})
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        counted = "SELECT is_correct, count(DISTINCT sample_id) FROM {} GROUP BY 1 ORDER BY 1"
        assert connection.execute(counted.format("wide_sample")).fetchall() == [(True, 1), (None, len(units) - 1)]
        for view in ("wide_step", "wide_candidate", "wide_call"):
            assert connection.execute(counted.format(view)).fetchall() == [(True, 1), (None, len(units) - 2)]
