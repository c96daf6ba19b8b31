"""The address of a server that runs a model, and the key that its requests carry."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.engine import Role

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_OF_ANOTHER_FORM = re.compile(r"[a-z][a-z0-9+.-]*:/|(\[[0-9a-f:]+\]|[\w.-]+):\d+(/|$)", re.IGNORECASE)
"""What looks like an address, of another scheme or without one, and can be neither a known model nor a hub id."""
_VERSION_PATH = "/v1"
_MOST_CHARACTERS = 500
_VALID = "valid: http://HOST:PORT/v1"


def is_address(name: str) -> bool:
    """Return whether a model is named by the address of a server. The address may still be invalid."""
    return _SCHEME.match(name.strip()) is not None


def refuse_other_forms(flag: str, name: str) -> None:
    """Raise ValueError, without the name, which may hold credentials, where it looks like an address and is none."""
    if not is_address(name) and _OF_ANOTHER_FORM.match(name.strip()):
        raise ValueError(f"{flag}: not an address of a server; {_VALID}")


def key_variable(role: Role) -> str:
    """Return the environment variable that holds the key for the server of a role."""
    return f"HARNESS_{role.upper()}_API_KEY"


def api_key(role: Role) -> str | None:
    """Return the key for the server of a role; None where the environment has none.

    Raises ValueError, without the key, where it cannot be sent in a header.
    """
    key = os.environ.get(key_variable(role), "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{key_variable(role)}: expected printable ASCII characters, as a header can carry them")
    return key or None


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens. It is no part of a run's identity and holds no credentials."""

    root: str
    """Scheme, host, port and path, without `/v1` and without a slash at the end."""

    @classmethod
    def parse(cls, flag: str, text: str) -> ServerAddress:
        """Return the address that `flag` was given. Raises ValueError with one line, which holds no credentials."""
        text = text.strip()
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"{flag}: an address of {len(text)} characters; at most {_MOST_CHARACTERS}, {_VALID}")
        try:
            split = urlsplit(text)
            port = split.port
        except ValueError:
            raise ValueError(f"{flag}: not an address of a server; {_VALID}") from None
        if not split.hostname or port == 0:
            raise ValueError(f"{flag}: an address without a host, or with port 0; {_VALID}")
        if split.username is not None or split.password is not None or "@" in split.netloc:
            variable = f"HARNESS_{flag.strip('-').upper()}_API_KEY"
            raise ValueError(f"{flag}: an address with a user name or a password would be recorded; set {variable}")
        if split.query or split.fragment:
            raise ValueError(f"{flag}: an address with ? or # would be recorded with what follows; {_VALID}")
        path = split.path.rstrip("/").removesuffix(_VERSION_PATH).rstrip("/")
        if any(not c.isprintable() or c.isspace() for c in split.netloc + path):
            raise ValueError(f"{flag}: the address holds a space or a control character; {_VALID}")
        return cls(f"{split.scheme.lower()}://{split.netloc.lower()}{path}")

    @property
    def shown(self) -> str:
        """The address as it is printed."""
        return self.root + _VERSION_PATH

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on the same machine can reach the server."""
        host = urlsplit(self.root).hostname or ""
        try:
            parsed = ipaddress.ip_address(host)
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
        return parsed.is_loopback or parsed.is_unspecified


@dataclass(frozen=True)
class ServedModel:
    """A model that a server runs, as an engine is told to use it."""

    address: str
    kind: str | None
    """`vllm`, `sglang` or `llama.cpp`; None where the server was not asked yet."""
    model: str
    """The model's id at the server."""
    fingerprint: str | None = None
    """What identifies the model, see `harness.engines.served.discovery.fingerprint`; None: it is not checked."""
