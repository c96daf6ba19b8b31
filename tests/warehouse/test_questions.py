"""Every question of the page is answered by its SQL, in the warehouse of the other tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.warehouse.conftest import Loaded
from warehouse import database
from warehouse.database import reader

PAGE = (Path(database.__file__).parent / "QUESTIONS.md").read_text(encoding="utf-8")
QUESTIONS = [
    (section.partition("\n")[0], sql)
    for section in PAGE.split("\n## ")[1:]
    for sql in re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
]
UNANSWERED = {
    "Did the target select",
    "How long are the drafts",
    "Do accepted steps score",
    "How far is the accepted text",
    "Which steps does the target",
    "How many decisions were close",
    "How often does the judge accept wrong",
    "What would another threshold",
    "Which problems are solved by some",
    "How long does one sample at a time take",
}
"""First words of questions about what these runs do not have: SCoT's drafts, their grades, rewards, log-probabilities
under the target, thresholds, timing samples, probes (test_probe.py), and problems that are right in some samples only,
for which see test_questions_answered.py."""


@pytest.mark.parametrize(("question", "sql"), QUESTIONS, ids=[q[:40] for q, _ in QUESTIONS])
def test_a_question_is_answered(loaded: Loaded, question: str, sql: str) -> None:
    with reader(loaded.database) as connection:
        answer = connection.execute(sql).fetchall()
    assert bool(answer) == (not any(question.startswith(opening) for opening in UNANSWERED))


def test_every_view_of_the_papers_is_on_the_page(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        views = {
            name for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        }
    queried = {view for view in views if re.search(rf"FROM {view}\b", PAGE)}
    papers = {
        "fallback_rate_by_setting", "token_split", "latency_split", "speed_up", "steps_by_author", "answer_length",
        "draft_selection_accuracy", "step_quality", "reflective_words", "acceptance_by_position", "judge_calibration",
        "judge_reliability", "judge_auroc", "threshold_replay", "flips", "run_stopwatch", "run_modelled_latency",
        "wide_sample", "wide_step", "wide_candidate", "wide_call", "flip_sample", "pass_at_k", "maj_at_k",
    }  # fmt: skip
    assert papers <= queried
