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
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

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


class DatasetNotFound(LookupError):
    """A dataset is not where it was looked for; the message is one line."""


def read(source: HubSource) -> tuple[list[Row], str, bool]:
    """Return all rows of a split, of the commit that its revision names now; that commit; and whether it was named.

    Offline it is the newest one in the cache, which nobody named. Raises DatasetNotFound, also where a revision is
    named and the cache has another commit, which the library reads offline in place of the one that was asked for.
    """
    if not sys.stderr.isatty():
        os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    hub_id, wanted = source.hub_id, source.revision
    with quick_failure():
        import datasets
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        # The client's own errors are those that the hub's are made of.
        failures = (OSError, ValueError, datasets.exceptions.DatasetsError, *HfHubHTTPError.__bases__)
        try:
            if wanted and is_offline():
                wanted = _cached_commit(hub_id, wanted) or wanted
            elif not _COMMIT.fullmatch(wanted or "") and not is_offline():
                wanted = HfApi().dataset_info(hub_id, revision=wanted or "main", timeout=20).sha
            table = datasets.load_dataset(hub_id, source.config, split=source.split, revision=wanted)
        except failures as error:
            line = " ".join(str(error).split())[:200]
            raise DatasetNotFound(f"hub {hub_id}@{wanted or 'main'}: {type(error).__name__}: {line}") from error
    places = (part for file in table.cache_files for part in Path(file["filename"]).parts)
    found = next((part for part in places if _COMMIT.fullmatch(part)), None)
    if found is None or wanted not in (None, found):
        raise DatasetNotFound(
            f"hub {hub_id}: the hub cannot be reached, and the newest commit in its cache is {found}, not {wanted}"
        )
    return list(table), found, wanted is not None


def _cached_commit(hub_id: str, revision: str) -> str | None:
    """Return the commit that a branch or tag of a dataset was when the cache got it; None where it does not know."""
    from huggingface_hub.constants import HF_HUB_CACHE

    file = Path(HF_HUB_CACHE) / f"datasets--{hub_id.replace('/', '--')}" / "refs" / revision
    return file.read_text(encoding="ascii").strip() if file.is_file() else None


@contextmanager
def quick_failure() -> Iterator[None]:
    """Keep an unreachable hub from costing minutes: huggingface_hub retries each of its requests five times.

    One connection is tried first; if it fails, the hub's libraries work offline meanwhile, by their own switch.
    """
    if is_offline() or is_reachable():
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


def is_reachable(timeout_seconds: float = 5.0) -> bool:
    """Return whether a connection to the hub, or to the proxy in front of it, can be opened."""
    url = urlsplit(getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout_seconds).close()
    except OSError:
        return False
    return True
