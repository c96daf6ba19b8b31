"""Where the processes of an engine keep files: on the node's own disk, one folder for each worker.

vLLM, Triton, FlashInfer and CUDA keep compiled code below the home directory, which nodes usually share. A hundred
nodes that start together would write the same files there. vLLM also writes one of its files in place and reads it
without expecting half of it (compilation/backends.py in vLLM 0.32), so two workers of one node get a folder each: the
first one that no other worker has locked, so that later workers find what earlier ones compiled.

Every start of vLLM also leaves some sockets and a file by which ranks find each other, all with random names, in the
folder for temporary files. Here that is a folder of the worker's own, which is removed when the worker ends. What a
killed worker has left is removed by the next worker of the same user on the node.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.engines import shared_memory

FOLDERS: Mapping[str, str] = {
    "VLLM_CACHE_ROOT": "vllm",  # torch.compile, DeepGEMM, peer access between cards, descriptions of models
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
}
"""Environment variables of the libraries, with the name of each one's folder."""
_NUM_FOLDERS = 64
"""Most workers of one user on a node that get a folder which later workers find again."""
_TEMPORARY = "tmp"
"""Folder for what nobody can use after this worker."""
_TEMPORARY_FOLDER, _SOCKET_FOLDER = "TMPDIR", "VLLM_RPC_BASE_PATH"
_MAX_SOCKET_FOLDER_CHARACTERS = 70
"""A socket's path has at most 107 characters, and vLLM adds a name of 37."""
_SHORT = "/tmp"
"""Where sockets are if the folder for temporary files has a long name, as in jobs of some sites."""
_held: dict[tuple[int, str], tuple[Path, int | None]] = {}
"""Folders and locks by process and disk: those of this process, and in a forked process also its parent's."""


def variables() -> dict[str, str]:
    """Return the variables that put caches, temporary files and sockets on the node's own disk.

    Those that the environment already sets are left out, except for the folder of temporary files, which is below the
    one that the environment names.
    """
    disk = tempfile.gettempdir()
    folder = _folder(disk)
    if folder is None:
        return {} if len(disk) <= _MAX_SOCKET_FOLDER_CHARACTERS or _SOCKET_FOLDER in os.environ else _sockets(_SHORT)
    chosen = {name: str(folder / own) for name, own in FOLDERS.items()} | _sockets(str(folder / _TEMPORARY))
    if len(chosen[_SOCKET_FOLDER]) > _MAX_SOCKET_FOLDER_CHARACTERS:
        short = _folder(_SHORT)
        chosen |= _sockets(_SHORT if short is None else str(short / _TEMPORARY))
    left = {name: path for name, path in chosen.items() if name not in os.environ}
    return {**left, _TEMPORARY_FOLDER: str(folder / _TEMPORARY)}


def note_shared_memory(processes: Iterable[int]) -> None:
    """Take note of the shared memory that processes of an engine use; if this worker is killed, the next removes it."""
    held = _held.get((os.getpid(), tempfile.gettempdir()))
    if held is not None:
        shared_memory.note(processes, held[0] / _TEMPORARY)


def _sockets(folder: str) -> dict[str, str]:
    return {_SOCKET_FOLDER: folder}


def _folder(disk: str) -> Path | None:
    """Return this worker's folder on a disk, the same in all calls; None, with a warning, where none can be made."""
    process = os.getpid()
    if (process, disk) not in _held:
        try:
            folder, lock = _take(Path(disk))
            (folder / _TEMPORARY).mkdir(mode=0o700)
        except OSError as error:
            warnings.warn(f"compiled code is kept in the home directory, because {error}", stacklevel=3)
            return None
        atexit.register(_remove, folder / _TEMPORARY, process)
        _held[process, disk] = folder, lock
    return _held[process, disk][0]


def _take(disk: Path) -> tuple[Path, int | None]:
    """Return a folder that no other worker uses, with the descriptor of its lock, which is held until this one ends."""
    root = disk / f"speculative-harness-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if _is_own(root):
        for number in range(_NUM_FOLDERS):
            folder = root / f"worker-{number}"
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = _locked(folder)
            if lock is not None:
                _remove_leftovers(root)
                _remove_left(folder / _TEMPORARY)
                _share(root / "modelinfos", folder / FOLDERS["VLLM_CACHE_ROOT"] / "modelinfos")
                return folder, lock
    private = Path(tempfile.mkdtemp(prefix="speculative-harness-", dir=disk))
    atexit.register(_remove, private, os.getpid())
    return private, None


def _locked(folder: Path) -> int | None:
    """Return the descriptor of a folder's lock; None where another worker has it, or there are no locks."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _remove_leftovers(root: Path) -> None:
    """Remove the temporary files of workers that were killed: those of folders that nobody has locked."""
    for left in root.glob(f"worker-*/{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            if (lock := _locked(left.parent)) is not None:
                _remove_left(left)
                os.close(lock)


def _remove_left(folder: Path) -> None:
    shared_memory.remove_noted(folder)
    _remove(folder)


def _remove(folder: Path, process: int | None = None) -> None:
    """Remove a folder with its contents; where a process is named, only in this one."""
    if process in (None, os.getpid()):
        shutil.rmtree(folder, ignore_errors=True)


def _share(shared: Path, link: Path) -> None:
    """Let vLLM keep its descriptions of models in one place for all workers: it writes them atomically."""
    shared.mkdir(mode=0o700, exist_ok=True)
    link.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(shared)


def _is_own(folder: Path) -> bool:
    """Return True if nobody else can have put files into the folder: what is in it will be executed."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
