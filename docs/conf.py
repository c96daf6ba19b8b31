"""The documentation as a site (`make docs`): reference tables from the code, a report on recorded runs."""

from __future__ import annotations

import re
import sys
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


def setup(app: Sphinx) -> None:
    """Put the generated parts into the pages."""
    app.connect("source-read", _filled)
