"""Custom methods: import their code from a file or a package, and register them.

A file must be self-contained: it may import this project and installed packages, but no other user files, which the
nodes would lack. A package is copied with all of its .py files. Installed packages are not copied, because the jobs'
Python has them. Errors in custom code are reported in one line, with the exception and its location.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from pydantic import ConfigDict

from harness.code_hash import digest_of
from harness.methods.method import BadMethod as BadMethod
from harness.methods.method import Method

PREFIX = "method/"
"""Name prefix of a method's files in a code record."""


@dataclass(frozen=True)
class MethodSource:
    """Origin of a run's method, recorded in the run's specification. Absent for a built-in method."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    reference: str
    """`file.py:Class` without the folder, or `package.module:Class`."""
    code_hash: str
    """Hash of the code that started the run, 16 hex digits (`PlugIn.code_hash`)."""
    distribution: str | None = None
    """Name and version of the installed distribution that contains the code; None: there is none."""
    at_default: tuple[str, ...] = ()
    """Hyper-parameters equal to their default, recorded to compute ids without the method's code."""
    speed_only: tuple[str, ...] = ()
    """Hyper-parameters that do not change the text, and so are not part of sample ids."""


@dataclass(frozen=True)
class Source:
    """An imported module with its files."""

    module: ModuleType
    origin: str
    """Absolute path of the file or package folder, for messages; never recorded."""
    files: Mapping[str, bytes] = field(repr=False)
    distribution: str | None
    """Name and version, if the module belongs to a distribution."""
    is_installed: bool
    """True if the files are in Python's installation folders, so jobs need no copy."""


@dataclass(frozen=True)
class OwnCode:
    """A custom method or grader with its code."""

    name: str
    """The method's name in runs, tables and plots, or the name of the grader's function."""
    reference: str
    """`file.py:Name` without the folder, or `package.module:Name`."""
    source: Source

    @property
    def code_hash(self) -> str:
        """Hash of all files, 16 hex digits."""
        return hash_of(self.recorded_digests)

    @property
    def recorded_digests(self) -> dict[str, str]:
        """Digests of the files, by their names in a code record."""
        return recorded_digests(self.source.files)


@dataclass(frozen=True)
class PlugIn(OwnCode):
    """A custom method with its code."""

    type: type[Method]


registered: dict[str, PlugIn] = {}
"""The loaded plug-ins by name, in loading order."""


def register(plugin: PlugIn) -> None:
    """Make a plug-in available under its name. Raises BadMethod if another method has the name.

    An edited version of the same method replaces the earlier one.
    """
    other = registered.get(plugin.name)
    if other and other.code_hash != plugin.code_hash and other.source.origin != plugin.source.origin:
        known = f"{other.reference} from {other.source.origin}"
        raise BadMethod(
            f'the name {plugin.name!r} is already used by {known}; rename one of them: name = "..." in its class'
        )
    registered[plugin.name] = plugin


def recorded_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the digests of a method's files, by their names in a code record."""
    return {f"{PREFIX}{name}": digest_of(content) for name, content in files.items()}


def recorded_hash(files: Mapping[str, str]) -> str | None:
    """Return the hash of the method's files in a code record; None if there are none."""
    own = {name: digest for name, digest in files.items() if name.startswith(PREFIX)}
    return hash_of(own) if own else None


def hash_of(digests: Mapping[str, str]) -> str:
    """Return a hash, 16 hex digits, of files given by name and digest."""
    return digest_of("".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())).encode())


_MODULE = "speculative_harness_method_"
"""Prefix of module names imported from a file."""
_OWN_PACKAGES = {"harness", "jobs", "grading", "warehouse"}


class MethodFailed(RuntimeError):
    """A custom method raised an exception; the message contains the exception's class, text and location."""


def from_file(path: Path) -> Source:
    """Import a file. Raises BadMethod."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadMethod(f"cannot be read: {error.strerror}") from error
    name = _MODULE + "".join(c if c.isalnum() else "_" for c in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, present = sys.modules.get(name), set(sys.modules)
    sys.modules[name] = module
    try:
        with _errors_in_one_line(), _no_bytecode():
            spec.loader.exec_module(module)
        _check_imports(path.name, present)
    except BaseException:
        sys.modules.pop(name) if before is None else sys.modules.update({name: before})
        raise
    return Source(module, str(path.absolute()), {path.name: content}, None, is_installed=False)


def from_module(name: str) -> Source:
    """Import a module by its dotted name; the working directory is also searched. Raises BadMethod."""
    present, folder = set(sys.modules), str(Path.cwd())
    added = folder not in sys.path and "" not in sys.path
    if added:
        sys.path.append(folder)
    try:
        importlib.invalidate_caches()
        with _errors_in_one_line(), _no_bytecode():
            module = importlib.import_module(name)
    finally:
        if added:
            sys.path.remove(folder)
    package = name.partition(".")[0]
    if package in _OWN_PACKAGES:
        return Source(module, str(module.__file__), {}, None, is_installed=True)
    _check_imports(name, present, package)
    place, names = _place_of(sys.modules[package], module), _distributions(tuple(sys.path)).get(package)
    distribution = f"{names[0]} {metadata.version(names[0])}" if names else None
    return Source(module, str(place), dict(_files(place)), distribution, _is_installed(place))


@lru_cache(maxsize=1)
def _distributions(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions by top-level package. Takes a second; `path` is only the cache key (`sys.path`)."""
    return metadata.packages_distributions()


@cache
def _installation_folders() -> tuple[Path, ...]:
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({Path(folder).resolve() for folder in folders})


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _installation_folders())


def _place_of(top: ModuleType, module: ModuleType) -> Path:
    """Return the file of a single module, or the folder of its top-level package."""
    file = getattr(module, "__file__", None)
    if file is None:
        raise BadMethod(f"{module.__name__} is not a Python file; valid: PACKAGE.MODULE:NAME")
    if hasattr(top, "__path__"):
        folders = [Path(folder).resolve() for folder in top.__path__]
        return next((folder for folder in folders if Path(file).resolve().is_relative_to(folder)), folders[0])
    return Path(str(top.__file__)).resolve()


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of a module's or package's .py files, except hidden files and links out of the package."""
    if place.is_file():
        yield place.name, place.read_bytes()
        return
    for path in sorted(place.rglob("*.py")):
        inner = path.relative_to(place)
        is_hidden = any(part.startswith((".", "__pycache__")) for part in inner.parts)
        if is_hidden or not path.is_file() or not path.resolve().is_relative_to(place):
            continue
        yield f"{place.name}/{inner.as_posix()}", path.read_bytes()


def _check_imports(name: str, before: set[str], own: str | None = None) -> None:
    """Raise BadMethod if code imported a module that is neither installed nor part of the given package."""
    for imported in sorted(set(sys.modules) - before):
        top, file = imported.partition(".")[0], getattr(sys.modules[imported], "__file__", None)
        if file is None or top in _OWN_PACKAGES or top == own or imported.startswith(_MODULE):
            continue
        path = Path(file).resolve()
        if not _is_installed(path) and top not in _distributions(tuple(sys.path)):
            raise BadMethod(
                f"{name} imports {imported} from {path}, which jobs would not have; put {name} and {imported} into "
                "one package and pass PACKAGE.MODULE:NAME"
            )


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no bytecode next to user files: after an edit in the same second, Python would load stale bytecode."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadMethod(f"cannot be imported: {described(error)}") from error


def failure_in(method: Method, error: Exception) -> MethodFailed | None:
    """Return the exception that replaces an error of a custom method; None for a built-in method."""
    module = type(method).__module__
    if module.partition(".")[0] in _OWN_PACKAGES:
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    return MethodFailed(f"the method raised {described(error, file)}")


def described(error: BaseException, file: str | None = None) -> str:
    """Return class, message and location of an exception, as `KeyError: 'x' (my_method.py:31)`.

    The location is the innermost one in `file`, otherwise the innermost one outside the import machinery.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or [
        frame for frame in frames if not frame.filename.startswith("<frozen ") and frame.filename not in _MACHINERY
    ]
    text, place = " ".join(str(error).split()), own and f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    return f"{type(error).__name__}{f': {text}' if text else ''}{place or ''}"


_MACHINERY = {__file__, importlib.__file__}
