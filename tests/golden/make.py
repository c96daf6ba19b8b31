"""Make a golden corpus: `python -m tests.golden.make FOLDER`, for a format that is not in an older corpus.

FOLDER holds `finished.toml`, `interrupted.toml` and `nights.toml`, copied from the last corpus; everything else is made
in it. README.md says where to run this, so that no path or name of a machine gets into the corpus.

Light on purpose: the grader's processes import the main module again, and what that imports counts into the memory
that they may use.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    from tests.golden.making import make

    make(Path(sys.argv[1]))
