"""Methods that are not part of this package: their code is imported from a file or a package, and registered here.

A file stands alone: it may import installed packages and this one, but no other file of the user's, which the nodes
would not have. A module of a package comes with all .py files of the package. A package that is installed is not
copied, because the jobs' Python has it. What goes wrong in a user's code is one line with the exception and its place.
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
"""What the names of a method's files begin with among those of the code that decides results."""


@dataclass(frozen=True)
class MethodSource:
    """Where a run's method came from, as its specification records it. Absent for a built-in method."""

    __pydantic_config__ = ConfigDict(extra="forbid")

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
class Source:
    """A module that was imported, with the files that it consists of."""

    module: ModuleType
    origin: str
    """Absolute path of the file or of the package's folder, for messages; never recorded."""
    files: Mapping[str, bytes] = field(repr=False)
    distribution: str | None
    """Name and version, where the module belongs to a distribution."""
    is_installed: bool
    """True where the files lie where distributions are installed, so that jobs need no copy."""


@dataclass(frozen=True)
class OwnCode:
    """Something that is not part of this package, a method or a grader, with its code."""

    name: str
    """How the run, the tables and the plots call a method; of a grader that of its function."""
    reference: str
    """`file.py:Name` without the folder, or `package.module:Name`."""
    source: Source

    @property
    def code_hash(self) -> str:
        """16 hex digits over all of its files."""
        return hash_of(self.recorded_digests)

    @property
    def recorded_digests(self) -> dict[str, str]:
        """The digests of its files under the names that a record of code gives them."""
        return recorded_digests(self.source.files)


@dataclass(frozen=True)
class PlugIn(OwnCode):
    """A method that is not part of this package, with its code."""

    type: type[Method]


registered: dict[str, PlugIn] = {}
"""The plug-ins that this process has loaded, by name, in the order of their loading."""


def register(plugin: PlugIn) -> None:
    """Make a plug-in available under its name. Raises BadMethod where the name is that of another one.

    The same method in an edited version takes the place of the earlier one.
    """
    other = registered.get(plugin.name)
    if other and other.code_hash != plugin.code_hash and other.source.origin != plugin.source.origin:
        known = f"{other.reference} from {other.source.origin}"
        raise BadMethod(
            f'the name {plugin.name!r} is also that of {known}; give one of them another: name = "..." in its class'
        )
    registered[plugin.name] = plugin


def recorded_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the digests of a method's files under the names that a record of code gives them."""
    return {f"{PREFIX}{name}": digest_of(content) for name, content in files.items()}


def recorded_hash(files: Mapping[str, str]) -> str | None:
    """Return the hash of the method among the files of a record of code; None where it holds no method's files."""
    own = {name: digest for name, digest in files.items() if name.startswith(PREFIX)}
    return hash_of(own) if own else None


def hash_of(digests: Mapping[str, str]) -> str:
    """Return 16 hex digits over files, given by name and digest."""
    return digest_of("".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())).encode())


_MODULE = "speculative_harness_method_"
"""What the names of modules begin with that are imported from a file."""
_OWN_PACKAGES = {"harness", "jobs", "grading", "warehouse"}


class MethodFailed(RuntimeError):
    """A method of a user's own raised an exception; the message names its class, its text and its place."""


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
    """Import a module by its dotted name, also from the working directory. Raises BadMethod."""
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
    """Return the distributions by top-level package; `path` is Python's, on which they depend. Takes a second."""
    return metadata.packages_distributions()


@cache
def _installation_folders() -> tuple[Path, ...]:
    folders = [sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({Path(folder).resolve() for folder in folders})


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _installation_folders())


def _place_of(top: ModuleType, module: ModuleType) -> Path:
    """Return the file of a module that is alone, or the folder of its top-level package."""
    file = getattr(module, "__file__", None)
    if file is None:
        raise BadMethod(f"{module.__name__} is not a file of Python; valid: PACKAGE.MODULE:NAME")
    if hasattr(top, "__path__"):
        folders = [Path(folder).resolve() for folder in top.__path__]
        return next((folder for folder in folders if Path(file).resolve().is_relative_to(folder)), folders[0])
    return Path(str(top.__file__)).resolve()


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the .py files of a module or package: no hidden ones, and no links to elsewhere."""
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
    """Raise BadMethod where code imported a module that belongs to no distribution and is not part of what is named."""
    for imported in sorted(set(sys.modules) - before):
        top, file = imported.partition(".")[0], getattr(sys.modules[imported], "__file__", None)
        if file is None or top in _OWN_PACKAGES or top == own or imported.startswith(_MODULE):
            continue
        path = Path(file).resolve()
        if not _is_installed(path) and top not in _distributions(tuple(sys.path)):
            raise BadMethod(
                f"{name} imports {imported} from {path}, which jobs would not have: such a file stands alone; put both "
                "into one package and name it as PACKAGE.MODULE:NAME"
            )


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    """Leave no compiled files beside a user's: one from the same second would hide an edit."""
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
    """Return what to raise in place of an exception in a method of a user's own; None in a built-in method."""
    module = type(method).__module__
    if module.partition(".")[0] in _OWN_PACKAGES:
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    return MethodFailed(f"the method raised {described(error, file)}")


def described(error: BaseException, file: str | None = None) -> str:
    """Return class, message and place of an exception, as `KeyError: 'x' (my_method.py:31)`.

    The place is the last one in `file`, or else where it was raised, the importing machinery left out.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or [
        frame for frame in frames if not frame.filename.startswith("<frozen ") and frame.filename not in _MACHINERY
    ]
    text, place = " ".join(str(error).split()), own and f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    return f"{type(error).__name__}{f': {text}' if text else ''}{place or ''}"


_MACHINERY = {__file__, importlib.__file__}
