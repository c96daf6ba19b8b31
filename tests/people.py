"""Commands as other users of this machine, who share a group: needs root, who may become anybody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.requirements import require_tool, skip_by_design

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Commons:
    """A folder that every user may enter, with this checkout and this Python, which may lie in a private one."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")

    def shared_by(self, gid: int) -> Path:
        """Make a folder of a group, whose new files belong to the group too."""
        folder = Path(tempfile.mkdtemp(prefix="shared-", dir=self.folder))
        os.chown(folder, 0, gid)
        folder.chmod(0o2770)
        return folder

    @property
    def variables(self) -> dict[str, str]:
        """What the interpreter needs to find its library, its packages and this checkout."""
        return {
            "LD_LIBRARY_PATH": str(self.folder / "python" / "lib"),
            "PYTHONPATH": f"{self.folder / 'checkout'}{os.pathsep}{self.folder / 'packages'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@contextmanager
def commons() -> Iterator[Commons]:
    """Make a Commons; skips the test where mounts are not allowed."""
    require_tool("root")
    sources = {"checkout": ROOT, "packages": Path(sysconfig.get_path("purelib")), "python": Path(sys.base_prefix)}
    folder = Path(tempfile.mkdtemp(prefix="harness-people-", dir="/tmp"))  # jobs and their users see no private folder
    folder.chmod(0o755)
    mounted: list[Path] = []
    try:
        for name, source in sources.items():
            (folder / name).mkdir()
            command = ["mount", "--bind", str(source), str(folder / name)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                skip_by_design("this container allows no mounts, and nothing that is installed in it changes that")
            mounted.append(folder / name)
        yield Commons(folder)
    finally:
        for point in mounted:
            subprocess.run(["umount", "-l", str(point)], check=True)
        for name in sources:
            (folder / name).rmdir()  # never through a mount that is left
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Answer:
    exit_code: int
    output: str
    error: str
    """The exception that it ended with; empty where it ended as commands do."""


_COMMANDS = """
import importlib, json, sys
from click.testing import CliRunner
for module, *arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(importlib.import_module(module).main, arguments)
    error = "" if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
    print(json.dumps({"exit_code": done.exit_code, "output": done.output, "error": error}), flush=True)
"""


@dataclass(frozen=True)
class Person:
    """A user, who need not be in /etc/passwd."""

    uid: int
    gid: int
    """The user's own group."""
    groups: tuple[int, ...]
    """Further groups."""
    commons: Commons
    umask: int = 0o002
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The user's home, which nobody else may enter."""
        home = self.commons.folder / f"home-{self.uid}"
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, self.uid, self.gid)
        return home

    def run(self, *command: str, umask: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as this person; its output is in one stream, as at a terminal."""
        return subprocess.run(
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=self.groups,
            umask=self.umask if umask is None else umask,
            cwd=self.home,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=180,
        )

    def harness(self, module: str, *arguments: object, umask: int | None = None) -> subprocess.CompletedProcess[str]:
        return self.run(self.commons.python, "-m", module, *map(str, arguments), umask=umask)

    def commands(self, *commands: Sequence[object], umask: int | None = None) -> list[Answer]:
        """Run commands, each a module and its arguments, one after the other in one process of this person."""
        lines = json.dumps([[str(word) for word in command] for command in commands])
        done = self.run(self.commons.python, "-c", _COMMANDS, lines, umask=umask)
        assert done.returncode == 0, done.stdout
        return [Answer(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith('{"exit_code"')]

    def environment(self) -> dict[str, str]:
        """The variables of this person's terminal."""
        login = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "COLUMNS": "200"}
        return login | self.commons.variables | dict(self.variables)
