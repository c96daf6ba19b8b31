"""A database in memory that may read and write any file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from warehouse.database import Connection, memory_mebibytes


@contextmanager
def scratch(folder: Path) -> Iterator[Connection]:
    """Open a database in memory that spills to a temporary folder inside `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".spill-") as spill:
        config = {"memory_limit": f"{memory_mebibytes()}MiB", "temp_directory": spill}
        with duckdb.connect(":memory:", config=dict(config)) as connection:
            yield connection
