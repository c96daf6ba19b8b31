"""The verdicts are listed once, in `grading`; what SQL and reports must repeat is compared with that list here."""

from __future__ import annotations

import re

from grading import VERDICTS
from tests.warehouse.conftest import Loaded
from warehouse.database import reader
from warehouse.nightly.judge import GATES
from warehouse.report.facts import report_facts
from warehouse.report.tables import ordered_verdicts


def test_the_counts_of_a_run_have_every_verdict(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        counted = connection.execute("SELECT DISTINCT verdict FROM verdict_counts").fetchall()
    assert {verdict for (verdict,) in counted} == set(VERDICTS)


def test_the_comment_on_a_grade_names_every_verdict_that_a_grade_can_have(loaded: Loaded) -> None:
    sql = "SELECT comment FROM duckdb_columns() WHERE table_name = 'grade' AND column_name = 'verdict'"
    with reader(loaded.database) as connection:
        [(comment,)] = connection.execute(sql).fetchall()
    assert set(re.findall(r"[a-z_]+", comment)) - {"or"} == set(VERDICTS) - {"not_run"}


def test_a_report_shows_every_verdict(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        shown = ordered_verdicts(report_facts(connection, [loaded.speculative.path.name]))
    assert sorted(shown) == sorted(VERDICTS)
    assert (shown[:2], shown[-1]) == (["correct", "wrong"], "not_run")


def test_the_nightly_gates_watch_verdicts_that_exist() -> None:
    assert {verdict for verdicts in GATES.values() for verdict in verdicts} <= set(VERDICTS)
