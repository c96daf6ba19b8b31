"""Resolve method references: a built-in name, `file.py:Class` or `package.module:Class`.

Custom methods are imported, checked and registered (`harness.methods.plugins`) under a short name: the class's `name`,
or the class name in lower case. Run folders and job code store a custom method as one archive, with `method.json` and
the method's files below `code/`. Graders use the same references and archives (`jobs.graders`).
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from harness.cli.messages import did_you_mean
from harness.methods import METHODS, plugins
from harness.methods.method import MODEL, Parameter, fields_of, name_of, problem_of
from harness.methods.plugins import (
    BadMethod,
    MethodSource,
    OwnCode,
    PlugIn,
    Source,
    from_file,
    from_module,
    hash_of,
    recorded_digests,
)

FORMS = "FILE.py:CLASS, PACKAGE.MODULE:CLASS"
"""Forms of a reference to a custom method, for messages."""
_T = TypeVar("_T")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def resolve(reference: str) -> str:
    """Return the name of the method; a custom one is loaded first. Raises BadMethod, with one line."""
    if reference in METHODS or (":" not in reference and reference in plugins.registered):
        return reference
    try:
        return _resolved(reference)
    except BadMethod as error:
        raise BadMethod(f"--method {reference}: {error}") from error


def source_of(name: str, params: Mapping[str, Parameter]) -> MethodSource | None:
    """Return a custom method's origin for the run's specification; None for a built-in method."""
    plugin = plugins.registered.get(name)
    if name in METHODS or plugin is None:
        return None
    declared = fields_of(plugin.type)
    return MethodSource(
        reference=plugin.reference,
        code_hash=plugin.code_hash,
        distribution=plugin.source.distribution,
        at_default=tuple(p.name for p in declared if params.get(p.name, p.default) == p.default),
        speed_only=tuple(p.name for p in declared if not p.changes_text),
    )


def beside(reference: str, folder: Path) -> str:
    """Return a reference with its relative file resolved against a folder; unchanged if no such file exists."""
    file, colon, name = reference.rpartition(":")
    if colon and _is_file(file) and not Path(file).is_absolute() and (folder / file).is_file():
        return f"{folder / file}:{name}"
    return reference


def located(reference: str, kind: Literal["class", "function"]) -> tuple[Source, str, str]:
    """Import the code of a reference. Raises BadMethod.

    Returns the code, the name of the class or function, and the reference without a folder.
    """
    module, colon, name = reference.rpartition(":")
    forms = FORMS.replace("CLASS", kind.upper())
    if not colon and reference.endswith(".py"):
        raise BadMethod(f"no {kind} given; write {reference}:{kind.upper()}")
    if not name.isidentifier():
        raise BadMethod(f"no valid {kind} after the colon; valid: {forms}")
    if _is_file(module):
        path = Path(module).expanduser()
        return from_file(path), name, f"{path.name}:{name}"
    if not _DOTTED.fullmatch(module):
        raise BadMethod(f"neither a .py file nor a module; valid: {forms}")
    return from_module(module), name, reference


def _resolved(reference: str) -> str:
    if ":" not in reference and not reference.endswith(".py"):
        raise BadMethod(f"unknown; valid: {', '.join(METHODS)}, or {FORMS}{did_you_mean(reference, METHODS)}")
    source, class_name, shown = located(reference, "class")
    plugin = _plugin(source, class_name, shown)
    before = plugins.registered.get(plugin.name)
    if before is not None and before.type is plugin.type and before.source.files != plugin.source.files:
        raise BadMethod(f"{source.origin} was edited after this process imported it; start the command again")
    plugins.register(plugin)
    return plugin.name


def _plugin(source: Source, class_name: str, reference: str, name: str | None = None) -> PlugIn:
    found, own = getattr(source.module, class_name, None), vars(source.module)
    if found is None:
        names = [name for name, of in own.items() if isinstance(of, type) and of.__module__ == own["__name__"]]
        raise BadMethod(f"no class {class_name}; {('found: ' + ', '.join(names)) if names else MODEL}")
    if problem := problem_of(found) if isinstance(found, type) else f"is not a method; {MODEL}":
        raise BadMethod(f"{class_name} {problem}")
    if (own_name := name_of(found, name)) in METHODS:
        raise BadMethod(f'{own_name!r} is the name of a built-in method; set another name in the class: name = "..."')
    return PlugIn(own_name, reference, source, found)


def _is_file(text: str) -> bool:
    return text.endswith(".py") or "/" in text


_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in an archive, constant so that equal code gives equal bytes."""
_ABOUT, _CODE = "method.json", "code"
_MAX_BYTES = 64 * 2**20
"""Maximum unpacked size of an archive."""
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Folders of unpacked code, needed until the process exits."""


def packed(plugin: OwnCode) -> bytes:
    """Return custom code as an archive, uncompressed so that equal code gives equal bytes for every version of zlib."""
    about = {"name": plugin.name, "reference": plugin.reference, "distribution": plugin.source.distribution}
    files = {_ABOUT: json.dumps(about, indent=2, sort_keys=True).encode()}
    if not plugin.source.is_installed:  # the jobs' Python has installed code
        files |= {f"{_CODE}/{name}": code for name, code in sorted(plugin.source.files.items())}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in files.items():
            archive.writestr(zipfile.ZipInfo(name, _FILE_TIME), code)
    return content.getvalue()


def files_packed(content: bytes) -> dict[str, bytes]:
    """Return the code files of an archive by name.

    Raises BadMethod if the archive is damaged or contains other files, such as a .pyc file, which Python would prefer.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > _MAX_BYTES:
                raise BadMethod(f"the code archive has more than {_MAX_BYTES:,} bytes")
            names = [member.filename for member in members]
            for name in names:
                parts = PurePosixPath(name).parts
                is_code = name == "/".join((_CODE, *parts[1:])) and name.endswith(".py") and ".." not in parts
                if names.count(name) > 1 or not (is_code or name == _ABOUT):
                    raise BadMethod(f"the code archive contains {name}; valid: method.json and .py files, each once")
            return {name[len(_CODE) + 1 :]: archive.read(name) for name in names if name != _ABOUT}
    except (zipfile.BadZipFile, KeyError, OSError, UnicodeDecodeError, RuntimeError, zlib.error) as error:
        raise BadMethod(f"the code archive is damaged: {error}") from error


def load_packed(content: bytes, code_hash: str | None = None, expected: str | None = None) -> PlugIn:
    """Register the method in an archive. Raises BadMethod as `unpacked` does, or if the method is missing."""

    def registered(source: Source, name: str, reference: str) -> PlugIn:
        plugin = _plugin(source, reference.rpartition(":")[2], reference, name)
        plugins.register(plugin)
        return plugin

    return unpacked(content, registered, code_hash, expected)


def unpacked(
    content: bytes, made: Callable[[Source, str, str], _T], code_hash: str | None = None, expected: str | None = None
) -> _T:
    """Import an archive's code from temporary files, which are removed when the process exits.

    `made` is called with the code, the name and the reference; its result is returned. `code_hash` and `expected`: the
    required hash and reference. The hash of installed code is not compared, because the archive does not contain the
    code. Raises BadMethod if the import fails or, before it, if the archive is damaged or hash or reference differ.
    """
    files = files_packed(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            about = json.loads(archive.read(_ABOUT))
        name, reference = str(about["name"]), str(about["reference"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise BadMethod(f"the code archive is damaged: {error}") from error
    found = hash_of(recorded_digests(files))
    if files and code_hash not in (None, found):
        raise BadMethod(f"the code archive has the hash {found} instead of {code_hash}")
    module = reference.rpartition(":")[0]
    path = module.replace(".", "/")
    is_inside = not {module, f"{path}.py", f"{path}/__init__.py"}.isdisjoint(files)
    if expected not in (None, reference) or not (is_inside if files else _DOTTED.fullmatch(module)):
        raise BadMethod(f"the code archive does not contain {reference}")
    folder = None
    if files:
        unpacked = tempfile.TemporaryDirectory(prefix="harness-method-")
        _folders.append(unpacked)
        folder = Path(unpacked.name)
        for file, code in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(code)
        if module not in files:
            sys.path.insert(0, str(folder))
    try:
        source = from_file(folder / module) if folder is not None and _is_file(module) else from_module(module)
        return made(source, name, reference)
    except BadMethod as error:
        installed = f" (it was installed with {about['distribution']})" if about.get("distribution") else ""
        raise BadMethod(f"{name}, {reference}: {error}{installed}") from error
