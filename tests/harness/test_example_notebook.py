"""The example notebook runs from its first cell to its last, here with scripted engines in place of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "harness" / "examples" / "compare_methods.ipynb"


def opened() -> Any:
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)


def parameters(notebook: Any) -> Any:
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    return cell


def texts(cell: Any) -> str:
    """Everything that a cell printed or ended with, as text."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from nbclient import NotebookClient

    notebook, folder = opened(), tmp_path_factory.mktemp("notebook")
    parameters(notebook).source += '\nengine = "scripted"\nsamples = 1'
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


@pytest.mark.needs_tool("notebook", "matplotlib")
def test_the_notebook_runs_from_its_first_cell_to_its_last(executed: Any) -> None:
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    runs = [texts(cell) for cell in code if "harness.run(" in cell.source]
    assert len(runs) == 2
    for text in runs:
        assert "30/30 samples" in text
        assert "\x1b" not in text, "no colors, and nothing is redrawn"
    [table] = [texts(cell) for cell in code if "harness.results(alone, together)" in cell.source]
    assert "vanilla" in table
    assert "speccot" in table
    [compared] = [texts(cell) for cell in code if "warehouse.compare" in cell.source]
    assert "Baseline: vanilla target" in compared
    [plot] = [cell for cell in code if "plt.show()" in cell.source]
    assert any("image/png" in output.get("data", {}) for output in plot.outputs)


@pytest.mark.needs_tool("notebook")
def test_the_notebook_is_kept_without_outputs_and_with_real_models_as_its_default() -> None:
    notebook = opened()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert 'engine = "auto"' in parameters(notebook).source
