"""SQL files that define and fill the database's tables and views, and their digest."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from warehouse.measures import MEASURES
from warehouse.sql import baselines, model_columns

ESTIMATES_VERSION = 11
"""Version of the estimation methods, part of the database format. Increase it if stored estimates change;
tests/warehouse/test_estimates.py shows when.
"""
FILLING = ("loading/insert", "loading/insert_totals")
"""SQL files that fill the tables from one run's staged tables, in order."""
_FOLDER = resources.files("warehouse") / "sql"
_TABLES = ("run", "trace", "grade", "probe", "budget", "target", "totals", "timing", "estimate")
"""Files of tables/."""
_COLUMNS_OF_MODELS = "    -- columns of models", model_columns.definitions()
_COMMENTS_OF_MODELS = "-- comments of models", model_columns.comments()
_OF_BASELINES = {
    "-- rows with conditions": baselines.CONDITIONED,
    "-- number of a setting": f"{baselines.setting_sql()} AS number",
    "-- the target alone, alike for times": baselines.baseline_sql("times"),
    "-- the target alone, alike for texts": baselines.baseline_sql("texts"),
}
"""SQL that replaces these placeholder comments in the views (warehouse/sql/baselines.py)."""
_VIEWS = (
    "macros", "accuracy", "speculation", "tokens", "speed", "speed_up", "timing", "modelled", "stopwatches",
    "judge", "replay", "drafts", "probe", "budget", "flips", "wide", "several", "code", "target",
)  # fmt: skip
"""Files of views/, in dependency order."""


def sql_of(name: str) -> str:
    """Return a SQL file of this package by its path without extension."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def tables_sql() -> str:
    text = "\n".join(sql_of(f"tables/{name}") for name in _TABLES)
    return text.replace(*_COLUMNS_OF_MODELS, 1).replace(*_COMMENTS_OF_MODELS, 1) + _measures_sql()


def views_sql() -> str:
    """Return the definitions of macros and views, in dependency order."""
    text = "\n".join(sql_of(f"views/{name}") for name in _VIEWS)
    for comment, sql in _OF_BASELINES.items():
        text = text.replace(comment, sql)
    return text


def _measures_sql() -> str:
    """Return the definition of the table of measures. As a view, it would slow down query planning."""
    names = ("name", "title", "meaning", "unit", "better", "is_of_times", "is_graded", "definition")
    listed = ",\n    ".join(
        f"({', '.join(_literal(getattr(measure, name)) for name in names)}, {sorted(measure.shown)})"
        for measure in MEASURES.values()
    )
    return f"""
CREATE TABLE measure AS
SELECT * FROM (VALUES
    {listed}
) AS registered({", ".join(names)}, shown);
COMMENT ON TABLE measure IS 'Meanings of the metrics in estimate and in tables of suites. Key: name';
"""


def _literal(value: str | int) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@cache
def format_digest() -> str:
    """Return the SHA-256 of the database format: definitions of tables and views, and the statements that fill them.

    Databases with a different digest are outdated and not used.
    """
    filling = [sql_of(name) for name in FILLING]
    computed = [f"{m.x} {m.y} {m.samples} {m.source} {m.by_role} {m.method.__name__}" for m in MEASURES.values()]
    texts = [tables_sql(), views_sql(), *filling, *computed, f"estimates {ESTIMATES_VERSION}"]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


_FILE = _FOLDER / "views" / "columns.toml"
_UNIT_BY_NAME = (
    (r"_at$", "UTC"),
    (r"tokens_per_second$", "tokens/s"),
    (r"(^|_)seconds(_per_sample)?$", "s"),
    (r"(^|_)tokens(_|$)", "tokens"),
    (r"^num_characters$", "characters"),
    (r"_bytes$", "bytes"),
    (r"^engine_.*_tensor_parallel$", "count"),
    (r"^engine_.*_memory$", "0 to 1"),
    (r"^num_", "count"),
    (r"_index$", "from 0"),
    (r"share|rate$|accuracy|pass_at_|maj_at_|probability|_score$|error$|(low|high)_95$|^top_p$", "0 to 1"),
)
"""Units by pattern of column names; the first match counts."""
_SAID = frozenset({"UTC", "nats", "from 0", "from 1", "0 to 1", "0 to 9", "1 to 10"})
"""Units that are not repeated if a meaning already contains them."""
_NUMBERS = re.compile(r"^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|FLOAT|DOUBLE|DECIMAL|TIMESTAMP)")
COLUMNS = """
SELECT table_name, column_name, data_type, comment, table_name IN (SELECT view_name FROM duckdb_views()) AS is_view
FROM duckdb_columns() WHERE NOT internal AND database_name = current_database() ORDER BY column_index
"""
"""Query for the columns of a database, in the order of the fields of `Column`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or view with its database comment; view columns have none."""

    table: str
    name: str
    type: str
    comment: str | None
    is_view: bool


def meanings(columns: Sequence[Column]) -> dict[tuple[str, str], str | None]:
    """Return each column's meaning with its unit, by table and column; None if unknown."""
    of_tables = {(column.table, column.name): column.comment for column in columns if not column.is_view}
    return {(column.table, column.name): _meaning(column, of_tables) for column in columns}


def _meaning(column: Column, of_tables: Mapping[tuple[str, str], str | None]) -> str | None:
    known = described()
    meaning = column.comment or known["of"].get(column.table, {}).get(column.name)
    meaning = meaning or of_tables.get((known["shows"].get(column.table, ""), column.name))
    meaning = meaning or known["column"].get(column.name)
    unit = unit_of(column)
    if meaning is None or unit is None or meaning.endswith(f"[{unit}]") or (unit in _SAID and unit in meaning):
        return meaning
    return f"{meaning} [{unit}]"


def unit_of(column: Column) -> str | None:
    """Return the unit of a number or time column; None for other columns or if unknown."""
    if not _NUMBERS.match(column.type):
        return None
    units: Mapping[str, str] = described()["unit"]
    named = units.get(f"{column.table}.{column.name}") or units.get(column.name)
    return named or next((unit for pattern, unit in _UNIT_BY_NAME if re.search(pattern, column.name)), None)


@cache
def described() -> Mapping[str, Any]:
    """Return the parsed file with the meanings of view columns and the units."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
