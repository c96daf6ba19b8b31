"""Hugging Face Hub access: dataset rows, and reachability checks that avoid minutes of retries."""

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
"""A dataset row: values by column name."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OFFLINE = "HF_HUB_OFFLINE"


_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.,+ -]+))?(?:@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A split of a Hub dataset."""

    hub_id: str
    config: str | None = None
    revision: str | None = None
    """The requested branch, tag or commit; None: the newest commit."""
    split: str = "test"

    @classmethod
    def parsed(cls, text: str, split: str) -> Self:
        """Parse `ORG/NAME[:CONFIG][@REVISION]`. Raises ValueError."""
        match = _HUB_ID.fullmatch(text)
        if match is None:
            raise ValueError(f"--dataset hf:{text}: expected ORG/NAME[:CONFIG][@REVISION]")
        return cls(match["id"], match["config"], match["revision"], split)

    @property
    def name(self) -> str:
        """Dataset name for runs; includes the configuration and split."""
        parts = [self.hub_id.partition("/")[2], self.config, None if self.split == "test" else self.split]
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in parts if part))


class DatasetNotFound(LookupError):
    """A dataset was not found; the message is one line."""


def read(source: HubSource) -> tuple[list[Row], str, bool]:
    """Return the rows of a split, their commit, and whether it is certainly the requested commit.

    Offline and without a revision, the newest cached commit is read, which may be outdated. Raises DatasetNotFound if
    the rows cannot be read, or if the library reads another cached commit than the requested one, as it may offline.
    """
    if not sys.stderr.isatty():
        os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    hub_id, wanted = source.hub_id, source.revision
    with quick_failure():
        import datasets
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

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
        raise DatasetNotFound(f"hub {hub_id}: cannot read {wanted or 'main'} from the Hub; newest cached: {found}")
    return list(table), found, wanted is not None


def _cached_commit(hub_id: str, revision: str) -> str | None:
    """Return the cached commit of a branch or tag of a dataset; None if unknown."""
    from huggingface_hub.constants import HF_HUB_CACHE

    file = Path(HF_HUB_CACHE) / f"datasets--{hub_id.replace('/', '--')}" / "refs" / revision
    return file.read_text(encoding="ascii").strip() if file.is_file() else None


@contextmanager
def quick_failure() -> Iterator[None]:
    """Avoid minutes of waiting for an unreachable Hub: huggingface_hub retries each request five times.

    One connection is tried first. If it fails, the Hub's libraries are offline within this context.
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
    """Set the offline switch of huggingface_hub, and its copy that the library datasets makes on import."""
    for name in ("huggingface_hub.constants", "datasets.config"):
        if name in sys.modules:
            sys.modules[name].__dict__[_OFFLINE] = is_offline


def is_offline() -> bool:
    """Return whether huggingface_hub is offline (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE) or not installed."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return True
    return bool(constants.HF_HUB_OFFLINE)


def offline_by(*, for_datasets: bool = False) -> str | None:
    """Return the environment variable that puts the Hub's libraries in offline mode; None if none is set."""
    names = (_OFFLINE, "TRANSFORMERS_OFFLINE", *(["HF_DATASETS_OFFLINE"] if for_datasets else []))
    return next((name for name in names if os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}), None)


def download(hub_id: str, revision: str | None) -> str:
    """Return instructions for downloading a model into the cache."""
    words = ["hf download", hub_id, *(["--revision", revision] if revision else [])]
    return f"on a machine that has Hub access and shares the nodes' HF_HOME, run: {' '.join(words)}"


def is_reachable(timeout_seconds: float = 5.0) -> bool:
    """Return whether a connection to the Hub or its proxy can be opened."""
    url = urlsplit(getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout_seconds).close()
    except OSError:
        return False
    return True
