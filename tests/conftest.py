"""The marker `needs_tool` (requirements.py), what runs in one process under pytest-xdist, one pair of vLLM engines, one
thread for torch, and hypothesis without deadlines.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.requirements import is_ci, require_tool

if TYPE_CHECKING:
    from harness.engine import Role
    from harness.engines.pool import EngineNeed, EnginePool
    from harness.engines.vllm import VLLMEngine

# Threads of torch wait for each other by spinning. Where another process has the second core, those of a small model
# then take eight times the processor time of a single one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# On a busy machine any example may take longer than hypothesis's 200 ms. Under CI hypothesis has a profile of its own:
# no deadline either, and the same examples each time.
if not is_ci():
    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")

# A worker of pytest-xdist has a terminal's width, and output would be wrapped to it.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# Those of the tests that need a Slurm each have a cluster of their own.
_FAULTS = ("test_chaos.py", "test_container.py", "test_deaths.py", "test_retries.py", "test_shared_jobs.py")

_LONG = ("vllm", "snapshots", "report")
"""Groups of tests: files that import vLLM or start it, and folders whose files share what takes long to make."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--half`, with which two processes beside each other run every test on Slurm once."""
    parser.addoption("--half", choices=("faults", "jobs"), help="The half of tests/slurm: with faults, or without.")


@cache
def _group(file: Path) -> str:
    if re.search(r"mark\.vllm|needs_tool\(\"vllm\"\)", file.read_text(encoding="utf-8")):
        return "vllm"
    return file.parent.name if file.parent.name in _LONG else str(file)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs all files with vLLM, and one the tests of any other file, whose fixtures they share.

    Two pairs of engines at a time need twice the memory.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(self.config.rootpath / nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist's options there are no workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest groups first, and tests that share the pair of engines behind those with engines of their own.

    The session's pair stays open from its first test on.
    """
    if asked := config.getoption("--half"):
        items[:] = [item for item in items if (item.path.name in _FAULTS) == (asked == "faults")]
    items.sort(key=lambda item: (_group(item.path) not in _LONG, "vllm_pair" in getattr(item, "fixturenames", ())))


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what commands remember for a user out of the home of whoever tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools are missing before its fixtures are set up; under CI it fails."""
    for marker in item.iter_markers("needs_tool"):
        for name in marker.args:
            require_tool(name)


PAIR_CONTEXT, PAIR_CONCURRENCY = 1024, 40
"""The demo's context, and as many samples of it as the cache of either engine holds."""


@dataclass(frozen=True)
class VLLMPair:
    """The bundled pair on vLLM, one start for all tests that need no more than running engines."""

    pool: EnginePool
    """Leases these engines to a run with equal needs."""
    kv_bytes: int
    needs: list[EngineNeed]
    draft: VLLMEngine
    target: VLLMEngine
    log_dir: Path

    def served(self, needs: Iterable[EngineNeed]) -> list[EngineNeed]:
        """Return a run's needs with the cores of these engines: then they serve the run."""
        cores = {need.role: need.settings.cpu_cores for need in self.needs}
        return [replace(need, settings=replace(need.settings, cpu_cores=cores[need.role])) for need in needs]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VLLMPair]:
    """No test may end its engines, and all run in its loop: `pytest.mark.asyncio(loop_scope="session")`."""
    from harness.engines.pool import EngineNeed, EnginePool
    from harness.engines.settings import pair_settings
    from harness.engines.vllm import VLLMEngine
    from harness.weights.models import pair_folder

    roles: tuple[Role, ...] = ("draft", "target")
    log_dir, kv_bytes = tmp_path_factory.mktemp("engines"), 1536 << 20
    settings = pair_settings(
        *("vllm", roles),
        dtype="float32",
        max_context=PAIR_CONTEXT,
        concurrency=PAIR_CONCURRENCY,
        candidates=3,
        kv_bytes=kv_bytes,
    )
    needs = [EngineNeed(role, str(pair_folder(f"demo-{role}")), None, settings[role]) for role in roles]
    async with EnginePool() as pool:
        await pool.lease(needs, log_dir)
        target, draft = (opened.engine for opened in pool._open)
        assert isinstance(draft, VLLMEngine)
        assert isinstance(target, VLLMEngine)
        yield VLLMPair(pool, kv_bytes, needs, draft, target, log_dir)
