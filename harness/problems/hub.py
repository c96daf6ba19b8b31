"""The Hugging Face hub: rows of its datasets, and whether it can be reached, without minutes of retries."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

if TYPE_CHECKING:
    from datasets import Dataset

Row = Mapping[str, Any]
"""What a row of a dataset has in its columns, by their names."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OFFLINE = "HF_HUB_OFFLINE"


_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.,+ -]+))?(?:@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A split of a dataset of the hub."""

    hub_id: str
    config: str | None = None
    revision: str | None = None
    """As it was asked for, such as a branch; None: the newest."""
    split: str = "test"

    @classmethod
    def parsed(cls, text: str, split: str) -> Self:
        """Return what `ORG/NAME[:CONFIG][@REVISION]` names. Raises ValueError."""
        match = _HUB_ID.fullmatch(text)
        if match is None:
            raise ValueError(f"--dataset hf:{text}: expected ORG/NAME[:CONFIG][@REVISION]")
        return cls(match["id"], match["config"], match["revision"], split)

    @property
    def name(self) -> str:
        """The name of a run's dataset: what tells the hub's parts apart is in it."""
        parts = [self.hub_id.partition("/")[2], self.config, None if self.split == "test" else self.split]
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in parts if part))


class HubRows(NamedTuple):
    """Rows of a dataset with what tells their version."""

    rows: list[Row]
    commit: str
    fingerprint: str
    is_wanted: bool
    """False where the hub does not answer and nobody named a revision, so that the newest cached one was read."""


class HubUnavailable(RuntimeError):
    """A dataset cannot be read from the hub or its cache; the message is one line."""


def read(source: HubSource) -> HubRows:
    """Return all rows of a split, of the commit that its revision names now.

    Offline that is the newest one in the cache, unless a revision is named. Raises HubUnavailable, also where the cache
    only has another commit, which the library reads offline in place of the one that it was asked for.
    """
    hub_id, wanted = source.hub_id, _commit(source.hub_id, source.revision)
    table = _table(source, wanted)
    found = _commit_of(table)
    if found is None:
        raise HubUnavailable(f"hub {hub_id}: its cache does not tell of which commit it is")
    if wanted not in (None, found):
        raise HubUnavailable(
            f"hub {hub_id}: the hub cannot be reached, and the newest commit in its cache is {found}, not {wanted}"
        )
    return HubRows(list(table), found, table._fingerprint, wanted is not None)


def _table(source: HubSource, commit: str | None) -> Dataset:
    if not sys.stderr.isatty():
        os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with quick_failure():
        import datasets

        try:
            return datasets.load_dataset(source.hub_id, source.config, split=source.split, revision=commit)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise HubUnavailable(f"hub {source.hub_id}: {_one_line(error)}") from error


def _commit(hub_id: str, revision: str | None) -> str | None:
    """Return the commit that a revision names now; offline None where no revision is given."""
    name = revision or "main"
    if _COMMIT.fullmatch(name):
        return name
    with quick_failure():
        if is_offline():
            return None if revision is None else _cached_commit(hub_id, name)
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError

        failures: tuple[type[Exception], ...] = (OSError, ValueError, *HfHubHTTPError.__bases__)  # the client's own too
        try:
            commit = huggingface_hub.HfApi().dataset_info(hub_id, revision=name, timeout=20).sha
        except failures as error:
            raise HubUnavailable(f"hub {hub_id}@{name}: {_one_line(error)}") from error
    return commit


def _cached_commit(hub_id: str, revision: str) -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        path = Path(HF_HUB_CACHE) / f"datasets--{hub_id.replace('/', '--')}" / "refs" / revision
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise HubUnavailable(
            f"hub {hub_id}@{revision}: the hub cannot be reached, and its cache does not know which commit that is; "
            "name the commit, or download the file and give that"
        ) from error


def _commit_of(table: Dataset) -> str | None:
    """Return the commit in the path of a table's files in the cache, or else in its description; None without any.

    Offline, the description has none.
    """
    parts = [part for file in table.cache_files for part in Path(file["filename"]).parts]
    described = re.search(r"@([0-9a-f]{40})/", " ".join(table.info.download_checksums or ()))
    return next((part for part in parts if _COMMIT.fullmatch(part)), described[1] if described else None)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@contextmanager
def quick_failure(timeout_seconds: float = 5.0) -> Iterator[None]:
    """Keep an unreachable hub from costing minutes: huggingface_hub retries each of its requests five times.

    One connection is tried first; if it fails, the hub's libraries work offline meanwhile, by their own switch.
    """
    if is_offline() or is_reachable(timeout_seconds):
        yield
        return
    try:
        _switch(is_offline=True)
        yield
    finally:
        _switch(is_offline=False)


def _switch(*, is_offline: bool) -> None:
    """Turn the switch of huggingface_hub on or off, and the copy of it that datasets makes on import."""
    for name in ("huggingface_hub.constants", "datasets.config"):
        if name in sys.modules:
            sys.modules[name].__dict__[_OFFLINE] = is_offline


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
