"""Keep computed answers in memory and on disk, so that they are available to the next process.

Each question about a first file (a trace, or compile data) has one file below the user's cache directory. It contains a
key of the files that the answer was computed from; outdated answers are computed again and replaced. Files are written
under a temporary name and renamed; damaged ones are ignored. Answers that cannot be written stay in memory.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from isal import isal_zlib

from tb_torchcompile_plugin.logdir.filesystem import File, is_remote, write_whole
from tb_torchcompile_plugin.reader.cache import store
from tb_torchcompile_plugin.reader.cache.cache import (
    ANSWERS,
    cache_directory,
    mark_used,
    max_cache_bytes,
    name_of,
)
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.torch_names.devices import VARIABLE as PEAKS

Answer = TypeVar("Answer", bound=msgspec.Struct)

FORMAT_VERSION = 2  # of the files that hold answers; what an answer says is versioned with the package
# on disk, least recently used first out; chosen by hand: a line of 2 kB for each of 10,000 runs
MAX_FILES = 20_000
_FILE = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw])  # key, checksum of the answer, and the answer
_PACKAGE = Path(__file__).parents[2]


class AnswerSource(NamedTuple):
    """The files that an answer is computed from."""

    files: tuple[File, ...]  # its subject is first
    # the run that it is compared with, which the answer names; its files are among `files`
    baseline: str = ""


class AnswerStore:
    """Answers in memory, and below it on disk."""

    def __init__(self, most: int, *, large_files_only: bool) -> None:
        """Keep at most this many answers in memory.

        large_files_only: keep only answers about large files in memory: small files are read as fast as an answer.
        """
        self._memory = Memo(most)
        self._large_files_only = large_files_only

    def get(
        self,
        question: str,
        kind: type[Answer],
        source: AnswerSource,
        compute: Callable[[], Answer] | None = None,
    ) -> Answer | None:
        """Return the answer from memory, otherwise from disk, otherwise computed and then kept in both.

        None where it is in neither and there is no `compute`. Raises what `compute` raises.
        """
        find = partial(self._find, question, kind, source, compute)
        while True:
            answer = self._memory.get((question, source), find, keep=lambda answer: answer is not None)
            # None in spite of `compute`: this call waited for another thread that only looked.
            if answer is not None or compute is None:
                return answer

    def _find(
        self, question: str, kind: type[Answer], source: AnswerSource, compute: Callable[[], Answer] | None
    ) -> Answer | None:
        is_on_disk = bool(source.files)
        if is_on_disk and self._large_files_only:
            first = source.files[0]
            is_on_disk = not is_remote(first.path) and first.size >= store.WORTH_STORING
        answer = load(question, kind, source) if is_on_disk else None
        if answer is None and compute is not None:
            answer = compute()
            if is_on_disk:
                save(question, answer, source)
        return answer


def load(question: str, kind: type[Answer], source: AnswerSource) -> Answer | None:
    """Return the answer on disk; None where there is none that can be read, or it is outdated."""
    try:
        path, current_key = _path_and_key(question, source)
        key, checksum, answer = _FILE.decode(path.read_bytes())
        if key != current_key or checksum != isal_zlib.crc32(answer):
            return None
        decoded = msgspec.msgpack.decode(answer, type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None
    mark_used(path)
    return decoded


def save(question: str, answer: msgspec.Struct, source: AnswerSource) -> bool:
    """Write the answer in place of an older one; False where that cannot be done."""
    if max_cache_bytes() <= 0:
        return False
    try:
        path, key = _path_and_key(question, source)
        packed = msgspec.Raw(msgspec.msgpack.encode(answer))
        content = msgspec.msgpack.encode((key, isal_zlib.crc32(packed), packed))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # answers hold texts of the program
        write_whole(str(path), content)
        _remove_surplus(path.parent)
    except (OSError, ValueError, OverflowError):
        # A full disk, a name that is no UTF-8, or a number above 64 bits.
        return False
    return True


def _path_and_key(question: str, source: AnswerSource) -> tuple[Path, str]:
    """Return where the answer is, one for each question about a file, and the key of all that it depends on.

    Which bandwidth a device has, users may say in an environment variable.
    """
    files = [
        [
            file.path if is_remote(file.path) else os.path.realpath(file.path),
            file.size,
            file.tag or file.mtime_ns,
        ]
        for file in source.files
    ]
    first = files[0][0] if files else ""
    path = cache_directory() / ANSWERS / f"{question}-{name_of([first])}.msgpack"
    key = [FORMAT_VERSION, package_version(), os.environ.get(PEAKS, ""), source.baseline, *files]
    return path, name_of(key)


@cache
def package_version() -> str:
    """Return the version of this package. In a checkout it includes the time of the last change of its code.

    That is the newest time of all its files, as an editor that writes in place leaves the folder's time alone. It is
    read once per process (300 files take 2 ms).
    """
    try:
        version = metadata.version("tb-torchcompile-plugin")
    except metadata.PackageNotFoundError:  # only the source is there
        version = ""
    if not (_PACKAGE.parent / "pyproject.toml").is_file():
        return version
    return f"{version}+{max(path.stat().st_mtime_ns for path in _PACKAGE.rglob('*.py'))}"


def _remove_surplus(folder: Path) -> None:
    """Remove the least recently used tenth of too many files, and with them what killed processes left behind."""
    names = os.listdir(folder)
    if len(names) <= MAX_FILES:
        return
    paths = sorted((folder / name for name in names), key=lambda path: path.stat().st_mtime)
    for path in paths[: len(paths) - MAX_FILES * 9 // 10]:
        path.unlink(missing_ok=True)
