"""The SQL files that define the database: tables, views, and what fills the tables; and their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from warehouse import column_comments

ESTIMATES_VERSION = 5
"""Of the methods behind the rows of `estimate`, a part of the format of databases. Whoever changes what is stored
raises it; tests/warehouse/test_estimates.py says when that is necessary."""
FILLING = ("loading/insert", "loading/insert_totals")
"""SQL files that fill the tables from the staged tables of one run, in this order."""
_FOLDER = Path(__file__).parent
_TABLES = ("run", "trace", "grade", "probe", "target", "totals", "timing", "estimate")
"""Files of tables/."""
_VIEWS = (
    "macros", "accuracy", "speculation", "tokens", "speed", "speed_up", "timing", "modelled", "stopwatches",
    "judge", "replay", "drafts", "probe", "flips", "wide", "several", "code", "target",
)  # fmt: skip
"""Files of views/, each after those that it builds on."""


def sql_of(name: str) -> str:
    """Return the text of one of this package's SQL files, named by its path without the ending."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def tables_sql() -> str:
    """Return the definition of the tables."""
    return "\n".join(sql_of(f"tables/{name}") for name in _TABLES)


def views_sql() -> str:
    """Return the definition of macros and views, in the order in which they build on each other."""
    return "\n".join(sql_of(f"views/{name}") for name in _VIEWS)


def format_digest() -> str:
    """Return the SHA-256 of the definition of tables and views, and of what fills the tables: the format of databases.

    A database with another one is not used.
    """
    filling = [sql_of(name) for name in FILLING]
    texts = [tables_sql(), views_sql(), column_comments.text(), *filling, f"estimates {ESTIMATES_VERSION}"]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
