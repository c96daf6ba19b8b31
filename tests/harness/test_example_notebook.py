"""The page of the first evaluation runs as a notebook, here with scripted engines in place of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import main


@pytest.mark.needs_tool("notebook", "matplotlib")
def test_the_page_runs_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.reads(CliRunner().invoke(main, ["example", "notebook"]).output, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        cell.source = cell.source.replace("harness.launch", "harness.launch --engine scripted")
        cell.source = cell.source.replace("row/0 3", "row/0 0")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    said = "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)
    assert said.count("24/24 samples") == 2
    assert "Baseline: vanilla target" in said
    assert "fallback_rate" in said, "the SQL"
    assert "step 0" in said, "the trace"
    assert {"my.jsonl", "runs", "report.html", "figures", "authors.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert [json.loads(line)["final"] for line in (tmp_path / "my.jsonl").read_text().splitlines()][:2] == [240, 82]
