"""Files by path or URL: what is there, and some of its bytes.

The only module that uses fsspec, which is imported for the first URL, so that local folders do not need it. Errors of a
store become UserErrors with a next step; local files raise OSError.
"""

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from tb_torchcompile_plugin.errors import UserError, displayable

_URL = re.compile(r"(?P<root>[a-zA-Z][0-9a-zA-Z+.-]*://[^/]*)/*")
_LOCAL = "file://"
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_TAGS = ("ETag", "etag", "md5Hash", "content_md5")


class Part(NamedTuple):
    """One process of a file into which a tool merged the traces of several."""

    label: str  # before each of its process ids
    rank: int  # its place among them
    ranks: int
    machine: str = ""  # in front of each of its lines in a text


@dataclass(frozen=True)
class File:
    """A regular file, identified the way caches key it."""

    path: str  # a path or a URL
    size: int  # bytes
    mtime_ns: int  # Unix time, 0 where a store does not give it
    tag: str = ""  # a store's own id of this very content (an ETag), "" where there is none
    part: Part | None = None  # the selected part, None for all

    @property
    def name(self) -> str:
        """The name for display and for ids; it is not necessarily a path."""
        return displayable(os.path.basename(self.path))


def is_remote(path: str) -> bool:
    """Whether a path is a URL of anything but a local file."""
    return _URL.match(path) is not None and not path.startswith(_LOCAL)


def plain_path(path: str) -> str:
    """Return the path itself, or that of a `file://` URL, or a URL without slashes at its end."""
    if is_remote(path):
        return path.rstrip("/") if path.rstrip("/")[-1:] != ":" else path
    return path.removeprefix(_LOCAL)


def local_file(path: str) -> File | None:
    """Return a file; None for folders, FIFOs, devices and broken links."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return File(path, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def is_within(path: str, folder: str) -> bool:
    """Whether a local path, with links resolved, is inside a folder; "" is any folder."""
    if not folder:
        return True
    real = os.path.realpath(folder)
    return os.path.commonpath((real, os.path.realpath(path))) == real


def open_regular(path: str) -> int:
    """Return a descriptor for reading. Raises OSError, also if it is not a regular file.

    A file may have become a pipe after the folder was listed: opening it must not block.
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def open_binary(path: str) -> BinaryIO:
    """Open a regular file as a stream of bytes. Raises OSError."""
    return os.fdopen(open_regular(path), "rb")


def remote_file(url: str) -> File | None:
    """Return the file as it is now, None where the URL is a folder. Raises UserError."""
    with _explained(url):
        store, path = _open(url)
        store.invalidate_cache()
        info = store.info(path)
        return _file(url, info) if info["type"] == "file" else None


def remote_files(url: str, *, below: bool = True) -> list[File]:
    """Return the files in a remote folder, sorted by URL. Raises UserError. below: also those of folders in it."""
    with _explained(url):
        store, path = _open(url)
        store.invalidate_cache()
        if store.info(path)["type"] == "file":
            raise NotADirectoryError(url)
        if below:
            listed = store.find(path, detail=True)
        else:
            listed = {info["name"]: info for info in store.ls(path, detail=True)}
        prefix = store._strip_protocol(path).rstrip("/") + "/"
        files = [
            _file(f"{url}/{name.removeprefix(prefix)}", info)
            for name, info in listed.items()
            if info["type"] == "file" and not name.endswith("/")
        ]
    return sorted(files, key=lambda file: file.path)


def read_range(path: str, start: int, stop: int) -> bytes:
    """Read the bytes of a file from `start` to `stop`, fewer at its end. Raises OSError; of a remote one UserError."""
    if not is_remote(path):
        with open_binary(path) as stream:
            stream.seek(start)
            return stream.read(stop - start)
    with _explained(path):
        store, inner = _open(path)
        return bytes(store.cat_file(inner, start=start, end=stop))


def write_whole(path: str, data: bytes) -> None:
    """Write or replace a file, whole or not at all, and create its folder.

    Raises OSError (disk full, no permission) and leaves nothing behind then; of a remote one UserError.
    """
    if is_remote(path):
        with _explained(path, writing=True):
            store, inner = _open(path)
            store.pipe_file(inner, data)
        return
    with write_atomically(path) as file:
        file.write(data)


@contextlib.contextmanager
def explain_write_errors(path: str) -> Iterator[None]:
    """Raise UserError if a file that the user named cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror})", file=path, next_step="Choose another path"
        ) from error


@contextlib.contextmanager
def write_atomically(path: str) -> Iterator[BinaryIO]:
    """Yield a stream that replaces a local file in the end, whole or not at all, and create its folder. Raises OSError.

    The temporary file is in the same folder, because only there os.replace is atomic. Each thread has its own. What a
    link leads to is replaced, and neither a device nor a pipe is.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(errno.EINVAL, "this is no regular file")
    temporary = f"{path}.{threading.get_ident()}.{os.getpid()}.tmp"
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with renamed(temporary, path), open(temporary, "wb") as file:
        yield file


def is_running(pid: int) -> bool:
    """Return whether a process of this machine runs, or may. A killed one is a zombie until its parent waits."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    try:
        if os.name != "nt":  # there it would send Ctrl-C
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it belongs to another user
    return True


@contextlib.contextmanager
def renamed(temporary: str, path: str) -> Iterator[None]:
    """Rename the file that the block writes; remove it where the block fails."""
    try:
        yield
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_blocks(url: str, size: int, block: int, at_once: int) -> Iterator[bytes]:
    """Yield a remote file of `size` bytes, block by block, `at_once` requests at a time. Raises UserError."""
    for begin in range(0, size, block * at_once):
        starts = list(range(begin, min(size, begin + block * at_once), block))
        ends = [min(size, start + block) for start in starts]
        with _explained(url):
            store, path = _open(url)
            blocks = store.cat_ranges([path] * len(starts), starts, ends, on_error="raise")
        yield from blocks


def read_all(files: Sequence[File], at_once: int) -> Iterator[bytes | UserError]:
    """Yield small files as a whole, of a remote folder `at_once` requests at a time; or why one cannot be read."""
    for first in range(0, len(files), at_once):
        yield from _read_some(files[first : first + at_once])


def _read_some(files: Sequence[File]) -> list[bytes | UserError]:
    if not is_remote(files[0].path):
        return [_read_whole(file) for file in files]
    try:
        with _explained(files[0].path):
            store, paths = _open(files[0].path)[0], [_open(file.path)[1] for file in files]
            sizes = [file.size for file in files]
            contents = store.cat_ranges(paths, [0] * len(paths), sizes, on_error="return")
    except UserError as error:
        return [error] * len(files)
    return [
        _user_error(file.path, content) if isinstance(content, Exception) else bytes(content)
        for file, content in zip(files, contents)
    ]


def _read_whole(file: File) -> bytes | UserError:
    try:
        with open_binary(file.path) as stream:
            return stream.read(file.size)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        return UserError(problem, file=file.path, next_step="Check that it exists and is readable")


def _open(url: str) -> tuple[Any, str]:
    """Return the store of a URL, and the path in it."""
    match = _URL.match(url)
    assert match, url
    store = _store(match["root"])
    return store, store._strip_protocol(url)


@lru_cache(32)  # fsspec itself would make a new client for each thread
def _store(root: str) -> Any:
    scheme = root.partition("://")[0]
    try:
        import fsspec

        return fsspec.core.url_to_fs(root)[0]
    except ImportError as error:
        raise UserError(
            f"{scheme}:// needs a package that is not installed ({_one_line(error)})",
            file=root,
            next_step="Install it; for s3:// run: pip install 'tb-torchcompile-plugin[remote]'",
        ) from error


def _file(url: str, info: dict[str, Any]) -> File:
    tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
    return File(url, int(info.get("size") or 0), _modified_ns(info), tag.strip('"'))


def _modified_ns(info: dict[str, Any]) -> int:
    for key in _TIMES:
        value = info.get(key)
        with contextlib.suppress(ValueError):
            if isinstance(value, str):
                value = datetime.fromisoformat(value.replace("Z", "+00:00"))
            if isinstance(value, datetime):
                value = value.timestamp()
            if isinstance(value, (int, float)):
                return round(value * 1e6) * 1000
    return 0


@contextlib.contextmanager
def _explained(url: str, *, writing: bool = False) -> Iterator[None]:
    """Convert errors of a store into UserErrors."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _user_error(url, error, writing=writing) from error


def _user_error(url: str, error: Exception, *, writing: bool = False) -> UserError:
    if isinstance(error, UserError):
        return error
    cause = _one_line(error)
    if writing:
        problem = f"the store cannot be written ({cause})"
        next_step = "Give this process credentials with write access, or choose another location with --out"
    elif isinstance(error, FileNotFoundError):
        problem = "there is no such file, folder or bucket"
        next_step = "Check the address. If nothing has been written there yet, reload later"
    elif isinstance(error, PermissionError) or "Credential" in type(error).__name__:
        problem = f"access was refused ({cause})"
        next_step = "Give this process credentials with read and list access, then reload"
    else:
        problem = f"the store cannot be read ({cause})"
        next_step = "Check the address and the network, then reload"
    return UserError(problem, file=url, next_step=next_step)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
