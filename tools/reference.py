"""Generate parts of the documentation: commands, columns, keys of results.json, exit codes.

docs/conf.py inserts them at lines `<!-- generated: NAME -->`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import click
import duckdb
from click.testing import CliRunner

from harness.cli import exit_codes
from harness.cli.console import COMMANDS, main
from harness.cli.screen import Column, Table
from warehouse.report.summary import RunSummary
from warehouse.report.tables import markdown, markdown_text
from warehouse.sql import schema

_MARK = re.compile(r"^<!-- generated: ([a-z ]+) -->$", re.MULTILINE)
_TABLES = """
SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal UNION ALL
SELECT view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL
"""


def commands() -> str:
    """Return the help of every command, with all options."""
    parts = []
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}\n")
        for name, (called, _) in names.items():
            command = main.get_command(click.Context(main), name)
            assert command is not None
            flags = {flag for option in command.params for flag in option.opts}
            asked = ["--help-all" if "--help-all" in flags else "--help"]
            shown = CliRunner().invoke(command, asked, prog_name=f"python -m {called}", terminal_width=100)
            parts.append(f"### {called}\n\n```text\n{shown.output.rstrip()}\n```\n")
    return "\n".join(parts)


def columns() -> str:
    """Return the tables and views of the warehouse, with each column's type and meaning."""
    with closing(duckdb.connect(":memory:")) as connection:
        for sql in (schema.tables_sql(), schema.views_sql()):
            connection.execute(sql)
        named = connection.execute(_TABLES).fetchall()
        found = [schema.Column(*row) for row in connection.execute(schema.COLUMNS).fetchall()]
    meanings, of = schema.meanings(found), defaultdict[str, list[tuple[str, ...]]](list)
    for column in found:
        meaning = meanings[column.table, column.name] or ""
        of[column.table].append((column.name, column.type.lower(), meaning))
    rows = ((name, comment or "", _table(("column", "type", "meaning"), of[name])) for name, comment in named)
    return "\n".join(f"## {name}\n\n{markdown_text(comment)}\n\n{table}" for name, comment, table in rows)


def results() -> str:
    """Return the keys of results.json and their meanings."""
    fields = RunSummary.model_fields
    return _table(("key", "meaning"), [(name, field.description or "") for name, field in fields.items()])


def codes() -> str:
    """Return the exit codes and their meanings."""
    docstrings = _docstrings(Path(exit_codes.__file__).read_text("utf-8"))
    rows = sorted((value, docstrings[name]) for name, value in vars(exit_codes).items() if name.isupper())
    return _table(("code", "meaning"), [(str(value), meaning) for value, meaning in rows])


GENERATED: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "columns": columns,
    "results": results,
    "exit codes": codes,
}


def filled(page: str) -> str:
    """Return a page with its generated parts inserted. Raises KeyError for an unknown part."""
    return _MARK.sub(lambda mark: GENERATED[mark[1]](), page)


def _docstrings(source: str) -> dict[str, str]:
    """Return the docstring after each constant of a module, as one line."""
    found = {}
    for statement, after in pairwise(ast.parse(source).body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant):
            found[target.id] = " ".join(str(text.value).split())
    return found


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown([Table([Column(name, is_right=False) for name in names], rows)])
