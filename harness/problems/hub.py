"""The Hugging Face hub: rows of its datasets, and whether it can be reached, without minutes of retries."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies


class HubUnavailable(RuntimeError):
    """A dataset cannot be read from the hub or its cache; the message is one line."""


def read_rows(hub_id: str, config: str | None, split: str, revision: str | None) -> tuple[list[dict[str, Any]], str]:
    """Return all rows of a dataset, and the source with commit and fingerprint. Raises HubUnavailable."""
    with quick_failure():
        try:
            import datasets
        except ImportError as error:
            raise HubUnavailable(f"the package datasets cannot be imported ({error})") from error
        try:
            table = datasets.load_dataset(hub_id, config, split=split, revision=revision)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise HubUnavailable(f"hub {hub_id}: {reason}") from error
    commit = re.search(r"@([0-9a-f]{40})/", " ".join(table.info.download_checksums or ()))
    actual_revision = commit[1] if commit else revision or "unknown"
    return list(table), f"hub {hub_id}@{actual_revision} {table._fingerprint}"


@contextmanager
def quick_failure(timeout_seconds: float = 5.0) -> Iterator[None]:
    """Keep an unreachable hub from costing minutes: huggingface_hub retries each of its requests five times.

    One connection is tried first; if it fails, the hub's libraries work offline, from their cache. They read these
    variables only on import, so the copies in modules that are imported already are set as well.
    """
    timeouts = {"HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "20"}
    variables = {name: value for name, value in timeouts.items() if name not in os.environ}
    if os.environ.get("HF_HUB_OFFLINE") is None and not is_reachable(timeout_seconds):
        variables["HF_HUB_OFFLINE"] = "1"
    os.environ.update(variables)
    modules = [sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config")]
    copies = [m for m in modules if m is not None and hasattr(m, "HF_HUB_OFFLINE") and is_offline()]
    previous = [module.HF_HUB_OFFLINE for module in copies]
    for module in copies:
        module.__dict__["HF_HUB_OFFLINE"] = True
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        for module, value in zip(copies, previous, strict=True):
            module.__dict__["HF_HUB_OFFLINE"] = value


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE is set to one of the values that huggingface_hub accepts as true."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def is_reachable(timeout_seconds: float) -> bool:
    """Return whether a connection to the hub, or to the proxy in front of it, can be opened."""
    url = urlsplit(getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout_seconds).close()
    except OSError:
        return False
    return True
