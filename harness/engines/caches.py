"""Where the processes of an engine keep compiled code: on the node's own disk, one folder for each worker.

vLLM, Triton, FlashInfer and CUDA keep compiled code below the home directory, which nodes usually share. A hundred
nodes that start together would write the same files there. vLLM also writes one of its files in place and reads it
without expecting half of it (compilation/backends.py in vLLM 0.32), so two workers of one node get a folder each: the
first one that no other worker has locked, so that later workers find what earlier ones compiled.
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
from collections.abc import Mapping
from pathlib import Path

_FOLDERS: Mapping[str, str] = {
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
_SOCKET_FOLDER = "VLLM_RPC_BASE_PATH"
_MAX_SOCKET_FOLDER_CHARACTERS = 60
"""A socket's path has at most 107 characters, and vLLM adds a name of 37."""
_held: dict[int, tuple[Path, int | None]] = {}
"""Folder and lock of each process that has one: of this one, and in a forked process also its parent's."""


def variables() -> dict[str, str]:
    """Return the variables that put caches on the node's own disk, without those that the environment already sets."""
    folder = _folder()
    chosen = {} if folder is None else {name: str(folder / own) for name, own in _FOLDERS.items()}
    if len(tempfile.gettempdir()) > _MAX_SOCKET_FOLDER_CHARACTERS:
        chosen[_SOCKET_FOLDER] = "/tmp"
    return {name: path for name, path in chosen.items() if name not in os.environ}


def _folder() -> Path | None:
    """Return this worker's folder, the same in all calls; None, with a warning, where none can be made."""
    if os.getpid() not in _held:
        try:
            _held[os.getpid()] = _take()
        except OSError as error:
            warnings.warn(f"compiled code is kept in the home directory, because {error}", stacklevel=3)
            return None
    return _held[os.getpid()][0]


def _take() -> tuple[Path, int | None]:
    """Return a folder that no other worker uses, with the descriptor of its lock, which is held until this one ends."""
    root = Path(tempfile.gettempdir()) / f"speculative-harness-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if _is_own(root):
        for number in range(_NUM_FOLDERS):
            folder = root / f"worker-{number}"
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another worker has it, or this filesystem has no locks
                os.close(lock)
            else:
                _share(root / "modelinfos", folder / _FOLDERS["VLLM_CACHE_ROOT"] / "modelinfos")
                return folder, lock
    private = Path(tempfile.mkdtemp(prefix="speculative-harness-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private, None


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
