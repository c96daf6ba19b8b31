"""How the samples of each run were judged: the table, and what its figure shares with it."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.report.facts import RunFacts
from warehouse.report.tables import Table, limited


def table(runs: Sequence[RunFacts]) -> Table:
    """All samples by verdict."""
    kinds = ordered_verdicts(runs)
    rows = [
        (limited(run), *(str(run.summary.verdicts.get(k, 0)) for k in kinds), str(sum(run.summary.verdicts.values())))
        for run in runs
    ]
    caption = (
        "Every planned sample has one verdict; they sum to problems × samples. No problem leaves the "
        f"denominator.{ungraded(runs)}"
    )
    return Table("verdicts", "Verdicts", ("run", *(kind.replace("_", " ") for kind in kinds), "sum"), rows, caption)


def ungraded(runs: Sequence[RunFacts]) -> str:
    """A sentence on what the verdict not_run holds besides samples that were not run."""
    number_of = sum(run.summary.num_ungraded for run in runs)
    return f" «not run» holds {number_of:,} finished samples that have no grade yet." if number_of else ""


def ordered_verdicts(runs: Sequence[RunFacts]) -> list[str]:
    """All verdicts, in the order in which a report shows them."""
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
    known = {verdict for run in runs for verdict in run.summary.verdicts}
    return [v for v in first if v in known] + sorted(known - set(first))
