"""The SQL files that define the database: tables, views, and what fills the tables; and digests of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from warehouse import column_comments

SCHEMA_VERSION = 3
"""Shown to people. Whether a database can be used is decided by the digests of the definitions."""
ESTIMATES_VERSION = 6
"""Of the methods behind the rows of `estimate`. Whoever changes what is stored raises it, so that older databases are
rebuilt by the next load; tests/warehouse/test_estimates.py says when that is necessary."""
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
_USED_IN_FILLING = ("macros", "replay")
"""Files of views/ that filling the tables uses."""


def sql_of(name: str) -> str:
    """Return the text of one of this package's SQL files, named by its path without the ending."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def tables_sql() -> str:
    """Return the definition of the tables."""
    return "\n".join(sql_of(f"tables/{name}") for name in _TABLES)


def views_sql() -> str:
    """Return the definition of macros and views, in the order in which they build on each other."""
    return "\n".join(sql_of(f"views/{name}") for name in _VIEWS)


def temporary_views_sql() -> str:
    """Return the definition of macros and views for one connection, which may be one that only reads."""
    return re.sub(r"^CREATE OR REPLACE (VIEW|MACRO)\b", r"CREATE OR REPLACE TEMP \1", views_sql(), flags=re.MULTILINE)


def tables_digest() -> str:
    """Return the SHA-256 of the definition of the tables, and of what fills them with rows and estimates."""
    used = [f"views/{name}" for name in _USED_IN_FILLING]
    filling = [sql_of(name) for name in (*FILLING, *used)]
    return _digest("\n".join([tables_sql(), *filling, f"estimates {ESTIMATES_VERSION}"]))


def views_digest() -> str:
    """Return the SHA-256 of the definition of macros and views, and of the comments on columns."""
    return _digest(views_sql() + column_comments.text())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
