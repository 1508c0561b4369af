"""Where are the measured runs of a gate kept? In baseline files of at most 200 kB: same runs, same bytes."""

import re
import zlib
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.compare.measures import (
    MAX_SAMPLES,
    METRICS,
    Measure,
    MeasuredRun,
    thinned,
)
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import filesystem

SUFFIX = ".tbtc"
# Raised when an older reader would misread the file. Added fields alone do not raise it: readers skip them.
FORMAT_VERSION = 2
MAX_BYTES = 200_000  # of a file: small enough to be committed
KIND = b"tb_torchcompile_plugin baseline"
_HEAD = re.compile(KIND + rb" (\d{1,9}), plugin [^\n]*\n")  # before a zlib stream of JSON
_MAX_INFLATED = 64 << 20  # bytes; far more than such a file can hold, and memory is bounded
_AGAIN = "Save it again with: tb-torchcompile baseline save RUN FILE"

_Runs = Annotated[list[MeasuredRun], msgspec.Meta(min_length=1)]


def is_baseline(path: str) -> bool:
    """Return whether a file is a baseline, or has its suffix. Raises UserError where a store cannot be read."""
    if path.endswith(SUFFIX):
        return True
    file = filesystem.remote_file(path) if filesystem.is_remote(path) else filesystem.local_file(path)
    return file is not None and _read(path, len(KIND)) == KIND


def save(runs: Sequence[MeasuredRun], path: str, plugin_version: str) -> int:
    """Write the file, whole or not at all, and return its size in bytes.

    Of runs of many steps it keeps fewer of each, so that it never has more than 200 kB. Raises UserError where that is
    not enough, or it cannot be written.
    """
    samples = MAX_SAMPLES
    while len(data := _packed(runs, plugin_version, samples)) > MAX_BYTES:
        samples //= 2
        if samples <= 1:
            raise UserError(
                f"{len(runs)} runs take more than {MAX_BYTES // 1000} kB, even with few steps of each",
                next_step="Save fewer runs",
            )
    with filesystem.explain_write_errors(path):
        filesystem.write_whole(path, data)
    return len(data)


def _packed(runs: Sequence[MeasuredRun], version: str, samples: int) -> bytes:
    head = b"%s %d, plugin %s\n" % (KIND, FORMAT_VERSION, version.encode())
    return head + zlib.compress(msgspec.json.encode([_thinned(run, samples) for run in runs]), 9)


def _thinned(run: MeasuredRun, samples: int) -> MeasuredRun:
    measures = {}
    for name, measure in run.measures.items():
        items = [replace(item, samples=thinned(item.samples, samples)) for item in measure.items]
        measures[name] = replace(measure, samples=thinned(measure.samples, samples), items=items)
    return replace(run, measures=measures)


def load(path: str) -> list[MeasuredRun]:
    """Read a baseline. Raises UserError where it cannot be read, is damaged or is of a newer format."""
    # a file of a newer version may be larger: it is refused for its version then
    data = _read(path, 4 * MAX_BYTES)
    if not (head := _HEAD.match(data)):
        raise UserError("the file is not a baseline, or is damaged", file=path, next_step=_AGAIN)
    if (version := int(head[1])) > FORMAT_VERSION:
        raise UserError(
            f"the baseline has format version {version}; this version reads up to {FORMAT_VERSION}",
            file=path,
            next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
        )
    # Of an older version, or by hand.
    why = "the baseline file does not contain this metric: save it again"
    unknown = {name: Measure(why_unknown=why) for name in METRICS}
    return [replace(run, measures=unknown | run.measures) for run in _inflated(data[head.end() :], path)]


def _read(path: str, size: int) -> bytes:
    try:
        return filesystem.read_range(path, 0, size)
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"cannot be read ({why})", file=path, next_step="Check the path and its permissions"
        ) from error


def _inflated(data: bytes, path: str) -> list[MeasuredRun]:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(data, _MAX_INFLATED)
        if not stream.eof:
            raise UserError("the baseline is cut off", file=path, next_step=_AGAIN)
        return msgspec.json.decode(text, type=_Runs)
    except (zlib.error, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise UserError(f"the baseline is damaged ({error})", file=path, next_step=_AGAIN) from error
