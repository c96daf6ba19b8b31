"""The documentation as a site (`make docs`): reference tables from the code, a report on recorded runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "Speculative reasoning harness"
extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
smartquotes = False
html_theme = "furo"
html_title = project
html_show_copyright = False
exclude_patterns = ["build"]


def _filled(app: Sphinx, docname: str, source: list[str]) -> None:
    from tools import reference

    # Pages beside docs/ are pages of the site too.
    source[0] = re.sub(r"\(\.\./([A-Z]+)\.md", lambda link: f"({link[1].lower()}.md", reference.filled(source[0]))


def _sample_report(app: Sphinx, exception: Exception | None) -> None:
    """Write the report on the recorded runs beside the pages."""
    if exception is None:
        python, runs = [sys.executable, "-m"], sorted(map(str, (ROOT / "tests" / "recorded").glob("demo-*")))
        with tempfile.TemporaryDirectory() as folder:
            database = ["--database", f"{folder}/warehouse.duckdb"]
            subprocess.run([*python, "warehouse.load", *runs, *database], cwd=ROOT, check=True, capture_output=True)
            report = [*python, "warehouse.report", *runs, *database, "-o", f"{app.outdir}/sample-report.html"]
            subprocess.run(report, cwd=ROOT, check=True, capture_output=True)


def setup(app: Sphinx) -> None:
    """Put the generated parts into the pages, and a report beside them."""
    app.connect("source-read", _filled)
    app.connect("build-finished", _sample_report)
