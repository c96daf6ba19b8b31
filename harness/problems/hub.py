"""The Hugging Face hub: rows of its datasets, and whether it can be reached, without minutes of retries."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

Row = Mapping[str, Any]
"""What a row of a dataset has in its columns, by their names."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OFFLINE = "HF_HUB_OFFLINE"
_NO_BARS = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class HubRows(NamedTuple):
    """Rows of a dataset with what tells their version."""

    rows: list[Row]
    commit: str
    fingerprint: str
    is_wanted: bool
    """False where the hub does not answer and nobody named a revision, so that the newest cached one was read."""


class HubUnavailable(RuntimeError):
    """A dataset cannot be read from the hub or its cache; the message is one line."""


def read(hub_id: str, config: str | None, split: str, revision: str | None) -> HubRows:
    """Return all rows of a split, of the commit that the revision (None: the newest) names now.

    Offline that is the newest one in the cache, unless a revision is named. Raises HubUnavailable, also where the cache
    only has another commit, which the library reads offline in place of the one that it was asked for.
    """
    wanted = _commit(hub_id, revision)
    table = _table(hub_id, config, split, wanted)
    found = _commit_of(table)
    if found is None:
        raise HubUnavailable(f"hub {hub_id}: its cache does not tell of which commit it is")
    if wanted not in (None, found):
        raise HubUnavailable(
            f"hub {hub_id}: the hub cannot be reached, and the newest commit in its cache is {found}, not {wanted}"
        )
    return HubRows(list(table), found, table._fingerprint, wanted is not None)


def _table(hub_id: str, config: str | None, split: str, revision: str | None) -> Any:
    with quick_failure():
        try:
            import datasets
        except ImportError as error:
            raise HubUnavailable(f"the package datasets cannot be imported ({error})") from error
        try:
            return datasets.load_dataset(hub_id, config, split=split, revision=revision)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise HubUnavailable(f"hub {hub_id}: {_one_line(error)}") from error


def _commit(hub_id: str, revision: str | None) -> str | None:
    """Return the commit that a revision names now; offline None where no revision is given."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    name = revision or "main"
    with quick_failure():
        try:
            import huggingface_hub
            from huggingface_hub.constants import HF_HUB_CACHE
        except ImportError as error:
            raise HubUnavailable(f"the package huggingface_hub cannot be imported ({error})") from error
        if is_offline():
            return None if revision is None else _cached_commit(Path(HF_HUB_CACHE), hub_id, name)
        try:
            commit = huggingface_hub.HfApi().dataset_info(hub_id, revision=name, timeout=20).sha
        except _errors_of_requests() as error:
            raise HubUnavailable(f"hub {hub_id}@{name}: {_one_line(error)}") from error
    if commit is None or not _COMMIT.fullmatch(commit):
        raise HubUnavailable(f"hub {hub_id}@{name}: the hub names no commit")
    return commit


def _cached_commit(cache: Path, hub_id: str, revision: str) -> str:
    path = cache / f"datasets--{hub_id.replace('/', '--')}" / "refs" / revision
    try:
        commit = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = ""
    if not _COMMIT.fullmatch(commit):
        raise HubUnavailable(
            f"hub {hub_id}@{revision}: the hub cannot be reached, and its cache does not know which commit that is; "
            "name the commit, or download the file and give that"
        )
    return commit


def _commit_of(table: Any) -> str | None:
    """Return the commit in the path of a table's files in the cache, or else in its description; None without any.

    Offline, the description has none.
    """
    parts = [part for file in table.cache_files for part in Path(file["filename"]).parts]
    described = re.search(r"@([0-9a-f]{40})/", " ".join(table.info.download_checksums or ()))
    return next((part for part in parts if _COMMIT.fullmatch(part)), described[1] if described else None)


def _errors_of_requests() -> tuple[type[Exception], ...]:
    """Return what a failing request raises; the client's own errors are the bases of huggingface_hub's."""
    from huggingface_hub.errors import HfHubHTTPError

    return (OSError, ValueError, *HfHubHTTPError.__bases__)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@contextmanager
def quick_failure(timeout_seconds: float = 5.0) -> Iterator[None]:
    """Keep an unreachable hub from costing minutes: huggingface_hub retries each of its requests five times.

    One connection is tried first; if it fails, the hub's libraries work offline meanwhile, by their own switch. They
    read the timeouts only on import.
    """
    timeouts = {"HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "20"}
    settings = timeouts if sys.stderr.isatty() else timeouts | _NO_BARS
    variables = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(variables)
    try:
        is_asked = not is_offline() and (_OFFLINE in os.environ or is_reachable(timeout_seconds))
        with contextlib.nullcontext() if is_asked else _offline():
            yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


@contextmanager
def _offline() -> Iterator[None]:
    """Turn the switch of huggingface_hub on, and the copy of it that datasets makes on import."""
    usual = is_offline()  # imports the module of the switch, where it is installed
    before = {name: module.__dict__[_OFFLINE] for name, module in _with_switch().items()}
    for module in _with_switch().values():
        module.__dict__[_OFFLINE] = True
    try:
        yield
    finally:
        for name, module in _with_switch().items():
            module.__dict__[_OFFLINE] = before.get(name, usual)


def _with_switch() -> dict[str, ModuleType]:
    modules = {name: sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config")}
    return {name: module for name, module in modules.items() if module is not None and hasattr(module, _OFFLINE)}


def is_offline() -> bool:
    """Return whether huggingface_hub works offline (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE), or is not installed."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return True
    return bool(constants.HF_HUB_OFFLINE)


def offline_by(*, for_datasets: bool = False) -> str | None:
    """Return the variable by which the user keeps the hub's libraries offline; None where they may ask the hub."""
    names = (_OFFLINE, "TRANSFORMERS_OFFLINE", *(["HF_DATASETS_OFFLINE"] if for_datasets else []))
    return next((name for name in names if os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}), None)


def download(hub_id: str, revision: str | None) -> str:
    """Return in words how a model comes into the cache."""
    words = ["hf download", hub_id, *(["--revision", revision] if revision else [])]
    return f"on a machine with access to the hub, with the nodes' HF_HOME: {' '.join(words)}"


def is_reachable(timeout_seconds: float) -> bool:
    """Return whether a connection to the hub, or to the proxy in front of it, can be opened."""
    url = urlsplit(getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout_seconds).close()
    except OSError:
        return False
    return True
