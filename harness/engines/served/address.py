"""The address of a model server, and the key for its requests."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.engine import Role

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_OF_ANOTHER_FORM = re.compile(r"[a-z][a-z0-9+.-]*:/|(\[[0-9a-f:]+\]|[\w.-]+):\d+(/|$)", re.IGNORECASE)
"""Pattern of texts that look like an address without http(s) and cannot be a known model or a hub id."""
_VERSION_PATH = "/v1"
_MOST_CHARACTERS = 500
_VALID = "valid: http://HOST:PORT/v1"


def is_address(name: str) -> bool:
    """Return whether a model's name is a server address. The address may still be invalid."""
    return _SCHEME.match(name.strip()) is not None


def refuse_other_forms(flag: str, name: str) -> None:
    """Raise ValueError if the name looks like an address but is not one; the message omits possible credentials."""
    if not is_address(name) and _OF_ANOTHER_FORM.match(name.strip()):
        raise ValueError(f"{flag}: not a server address; {_VALID}")


def key_variable(role: Role) -> str:
    """Return the environment variable with the key for a role's server."""
    return f"HARNESS_{role.upper()}_API_KEY"


def api_key(role: Role) -> str | None:
    """Return the key for a role's server; None if it is not set.

    Raises ValueError if the key is invalid in a header; the message omits the key.
    """
    key = os.environ.get(key_variable(role), "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{key_variable(role)}: expected printable ASCII characters, as allowed in a header")
    return key or None


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server. It is not part of a run's identity and contains no credentials."""

    root: str
    """Scheme, host, port and path, without `/v1` and without a trailing slash."""

    @classmethod
    def parse(cls, flag: str, text: str) -> ServerAddress:
        """Parse the value of `flag`. Raises ValueError with one line that omits credentials."""
        text = text.strip()
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"{flag}: the address has {len(text)} characters; maximum: {_MOST_CHARACTERS}; {_VALID}")
        try:
            split = urlsplit(text)
            port = split.port
        except ValueError:
            raise ValueError(f"{flag}: not a server address; {_VALID}") from None
        if not split.hostname or port == 0:
            raise ValueError(f"{flag}: the address has no host, or its port is 0; {_VALID}")
        if split.username is not None or split.password is not None or "@" in split.netloc:
            variable = f"HARNESS_{flag.strip('-').upper()}_API_KEY"
            raise ValueError(f"{flag}: the address is recorded, so it must not contain credentials; set {variable}")
        if split.query or split.fragment:
            raise ValueError(f"{flag}: the address is recorded, so it must not contain ? or #; {_VALID}")
        path = split.path.rstrip("/").removesuffix(_VERSION_PATH).rstrip("/")
        if any(not c.isprintable() or c.isspace() for c in split.netloc + path):
            raise ValueError(f"{flag}: the address contains a space or a control character; {_VALID}")
        return cls(f"{split.scheme.lower()}://{split.netloc.lower()}{path}")

    @property
    def shown(self) -> str:
        """The address for display."""
        return self.root + _VERSION_PATH

    @property
    def is_loopback(self) -> bool:
        """Whether the server can only be reached from the same machine."""
        host = urlsplit(self.root).hostname or ""
        try:
            parsed = ipaddress.ip_address(host)
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
        return parsed.is_loopback or parsed.is_unspecified


@dataclass(frozen=True)
class ServedModel:
    """A model on a server, for an engine's settings."""

    address: str
    kind: str | None
    """`vllm`, `sglang` or `llama.cpp`; None before the first request to the server."""
    model: str
    """The model's id at the server."""
    fingerprint: str | None = None
    """The model's expected identity (see `harness.engines.served.discovery.fingerprint`); None: not checked."""
