"""Methods that are not part of this package: what is known of each, and those that this process has loaded.

Which code such a method is, and where it is found, is the matter of `harness.methods.references`. Here it is only
registered under its name, so that whatever builds a method by name finds it beside the built-in ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.records import NO_UNKNOWN_FIELDS

_DIGITS = 16
PREFIX = "method/"
"""What the names of a method's files begin with among those of the code that decides results."""


@dataclass(frozen=True)
class MethodSource:
    """Where a run's method came from, as its specification records it. Absent for a built-in method."""

    __pydantic_config__ = NO_UNKNOWN_FIELDS

    reference: str
    """`file.py:Class` without the folder, or `package.module:Class`."""
    code_hash: str
    """Hash of the code that began the run, 16 hex digits (`PlugIn.code_hash`)."""
    distribution: str | None = None
    """Name and version of the distribution that it was installed with; None: it belongs to none."""
    at_default: tuple[str, ...] = ()
    """Hyper-parameters that stand at their default, so that ids can be computed without the method's code."""
    speed_only: tuple[str, ...] = ()
    """Hyper-parameters that change no text, and so are not part of sample ids."""


@dataclass(frozen=True)
class PlugIn:
    """A method that is not part of this package, with its code."""

    name: str
    """How the run, the tables and the plots call it."""
    type: type
    reference: str
    """`file.py:Class` without the folder, or `package.module:Class`."""
    digests: Mapping[str, str]
    """The digest of each of its files, by name; of a file in Python, comments do not count."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The files that jobs need; empty where the method is installed, because then the jobs' Python has it."""
    distribution: str | None = None
    """Name and version of the distribution that it belongs to."""
    origin: str = ""
    """Where it was found on this machine, for messages; never recorded."""

    @property
    def code_hash(self) -> str:
        """16 hex digits over all of its files."""
        return hash_of(self.recorded_digests)

    @property
    def recorded_digests(self) -> dict[str, str]:
        """The digests of its files under the names that a record of code gives them."""
        return {f"{PREFIX}{name}": digest for name, digest in self.digests.items()}


_registered: dict[str, PlugIn] = {}


def registered(name: str) -> PlugIn | None:
    """Return the plug-in that this process has loaded under a name; None where there is none."""
    return _registered.get(name)


def all_registered() -> tuple[PlugIn, ...]:
    """Return the plug-ins that this process has loaded, in the order of their loading."""
    return tuple(_registered.values())


def register(plugin: PlugIn) -> None:
    """Make a plug-in available under its name. Raises ValueError where the name is that of another one.

    The same method in an edited version takes the place of the earlier one.
    """
    other = _registered.get(plugin.name)
    if other is not None and other.code_hash != plugin.code_hash and other.origin != plugin.origin:
        raise ValueError(
            f"--method {plugin.reference}: the name {plugin.name!r} is also that of {other.reference} from "
            f'{other.origin}; give one of them another: name = "..." in its class'
        )
    _registered[plugin.name] = plugin


def recorded_hash(files: Mapping[str, str]) -> str | None:
    """Return the hash of the method among the files of a record of code; None where it holds no method's files."""
    own = {name: digest for name, digest in files.items() if name.startswith(PREFIX)}
    return hash_of(own) if own else None


def hash_of(digests: Mapping[str, str]) -> str:
    """Return 16 hex digits over files, given by name and digest."""
    text = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def type_of(name: str) -> type[Any]:
    """Return the class of a loaded plug-in. Raises KeyError."""
    return _registered[name].type
