"""Build scrontab, which Debian's packages omit, from the source of the installed version.

Only this command is compiled; it is linked against the Slurm library of Debian.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path

PLACE = Path("/usr/local/bin/scrontab")
_SOURCE = "http://deb.debian.org/debian/pool/main/s/slurm-wlm/slurm-wlm_{version}.orig.tar.gz"
_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
_TEXTS = ("usage", "default_crontab")
_PARTS = ("scrontab", "env", "opt", "parse")


def build() -> None:
    """Build and install scrontab. Raises OSError and CalledProcessError."""
    query = ["dpkg-query", "--show", "--showformat", "${Version}", "slurm-client"]
    version = subprocess.run(query, check=True, capture_output=True, text=True).stdout.partition("-")[0]
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "source.tar.gz"
        urllib.request.urlretrieve(_SOURCE.format(version=version), archive)
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        [source] = (path for path in Path(folder).iterdir() if path.is_dir())
        _run(source, "./configure", "--quiet", "--without-munge")
        here = source / "src" / "scrontab"
        for text in _TEXTS:
            _run(here, "ld", "-r", "-o", f"{text}.o", "-z", "noexecstack", "--format=binary", f"{text}.txt")
        inputs = [*(f"{part}.c" for part in _PARTS), *(f"{text}.o" for text in _TEXTS)]
        link = [f"-L{_LIBRARY}", "-lslurmfull", f"-Wl,-rpath,{_LIBRARY}"]
        _run(here, "gcc", "-O1", "-I../..", "-o", str(PLACE), *inputs, *link)


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
