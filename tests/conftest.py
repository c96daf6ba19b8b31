"""The marker `needs_tool` (requirements.py), the option `--half`, one pair of vLLM engines, one thread for torch, and
hypothesis without deadlines.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from hypothesis import settings

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

# Their tests take about as long as all the others, and none of them starts vLLM.
_RECORDS = ("grading", "warehouse")
_HALVES = ("engines", "records")
# Those of the tests that need a Slurm each have a cluster of their own.
_FAULTS = ("test_chaos.py", "test_container.py", "test_deaths.py", "test_retries.py", "test_shared_jobs.py")
_SLURM_HALVES = ("faults", "jobs")
_IS_EMPTY = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--half`, with which two processes beside each other run every test once."""
    parser.addoption(
        "--half",
        choices=(*_HALVES, *_SLURM_HALVES),
        help="records: only the tests of grading/ and warehouse/ that start no vLLM; engines: only all others; "
        "faults and jobs: the two halves of slurm/.",
    )


def half(folder: str, *, starts_vllm: bool) -> str:
    """Return the half that a test belongs to. `folder`: the one under tests/ that it is in, or its file there.

    All tests that start vLLM are in one half, because two engines at a time need twice the memory.
    """
    return "records" if folder in _RECORDS and not starts_vllm else "engines"


def _is_in(half_asked: str, item: pytest.Item) -> bool:
    path = item.path.relative_to(Path(__file__).parent)
    if half_asked in _SLURM_HALVES:
        return path.parts[0] == "slurm" and (path.name in _FAULTS) == (half_asked == "faults")
    return half(path.parts[0], starts_vllm=item.get_closest_marker("vllm") is not None) == half_asked


@pytest.hookimpl(trylast=True)  # after -k, which may have left nothing of this half
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other half, where one is asked for; those that share the pair of engines come last.

    It would otherwise stay open beside the engines that other tests start.
    """
    items.sort(key=lambda item: "vllm_pair" in getattr(item, "fixturenames", ()))
    if asked := config.getoption("--half"):
        others = [item for item in items if not _is_in(asked, item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_in(asked, item)]
        config.stash[_IS_EMPTY] = bool(others) and not items


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a half succeed that none of the tests asked for is in."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(_IS_EMPTY, False):
        session.exitstatus = pytest.ExitCode.OK


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VLLMPair]:
    """No test may end its engines, and all run in its loop: `pytest.mark.asyncio(loop_scope="session")`."""
    from harness.engines.pool import EngineNeed, EnginePool
    from harness.engines.settings import pair_settings
    from harness.engines.vllm import VLLMEngine
    from harness.weights.models import pair_folder

    roles: tuple[Role, ...] = ("draft", "target")
    log_dir, kv_bytes = tmp_path_factory.mktemp("engines"), 512 << 20
    settings = pair_settings("vllm", roles, dtype="float32", max_context=512, concurrency=16, kv_bytes=kv_bytes)
    needs = [EngineNeed(role, str(pair_folder(f"demo-{role}")), None, settings[role]) for role in roles]
    async with EnginePool() as pool:
        await pool.lease(needs, log_dir)
        target, draft = (opened.engine for opened in pool._open)
        assert isinstance(draft, VLLMEngine)
        assert isinstance(target, VLLMEngine)
        yield VLLMPair(pool, kv_bytes, needs, draft, target, log_dir)
