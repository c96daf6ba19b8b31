"""The table of samples by verdict, and what its figure shares with it."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.report.facts import RunFacts
from warehouse.report.tables import Table, limited_label


def table(runs: Sequence[RunFacts]) -> Table:
    """Return the table of all samples by verdict."""
    kinds = ordered_verdicts(runs)
    rows = [
        (
            limited_label(run),
            *(str(run.summary.verdicts.get(kind, 0)) for kind in kinds),
            str(sum(run.summary.verdicts.values())),
        )
        for run in runs
    ]
    caption = (
        "Every planned sample has exactly one verdict, and the verdicts sum to problems × samples: no problem leaves "
        f"the denominator.{ungraded(runs)}"
    )
    columns = ("run", *(kind.replace("_", " ") for kind in kinds), "sum")
    return Table("verdicts", "Verdicts", columns, rows, caption, range(len(runs)))


def ungraded(runs: Sequence[RunFacts]) -> str:
    """Return a sentence on the finished samples without a grade, which count under the verdict not_run."""
    num_ungraded = sum(run.summary.num_ungraded for run in runs)
    return f' "not run" includes {num_ungraded:,} finished samples without a grade.' if num_ungraded else ""


def ordered_verdicts(runs: Sequence[RunFacts]) -> list[str]:
    """Return all verdicts in the report's order."""
    first = (
        "correct",
        "wrong",
        "truncated",
        "no_answer",
        "unparsable",
        "error",
        "grader_timeout",
        "bad_gold",
        "not_run",
    )
    present = {verdict for run in runs for verdict in run.summary.verdicts}
    return [verdict for verdict in first if verdict in present] + sorted(present - set(first))
