"""A baseline file: what a gate asks of runs, small enough to be committed. Same runs, same bytes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.analysis.compare import baseline_pb2 as pb
from tb_torchcompile_plugin.analysis.compare.gate_metrics import (
    MOST_SAMPLES,
    Measure,
    MeasuredItem,
    MeasuredRun,
)
from tb_torchcompile_plugin.compile_log.record import known_number
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import (
    is_remote,
    local_file,
    read_range,
    remote_file,
    write_whole,
    written,
)

KIND = "tb_torchcompile_plugin baseline"
SUFFIX = ".tbtc"
# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
MOST_BYTES = 200_000
_MOST_INFLATED = 64 << 20
_AGAIN = "Save it again with: tb-torchcompile baseline save RUN FILE"


def is_baseline(path: str) -> bool:
    """Whether it is one, or is called so. Raises UserError where a store cannot be read."""
    if path.endswith(SUFFIX):
        return True
    file = remote_file(path) if is_remote(path) else local_file(path)
    head = _HEAD
    return file is not None and _read(path, len(head)) == head


def save(runs: Sequence[MeasuredRun], path: str, plugin_version: str) -> int:
    """Writes the file, whole or not at all, and returns how many bytes it has: of runs of many steps it keeps fewer of
    each, so that it never has more than 200 kB. Raises UserError where that is not enough, or it cannot be written."""
    data = _fitting(runs, plugin_version)
    with written(path):
        write_whole(path, data)
    return len(data)


def load(path: str) -> list[MeasuredRun]:
    """Raises UserError where it cannot be read, is damaged or is of a newer format."""
    data = _read(path, 4 * MOST_BYTES)
    try:
        made = pb.Baseline.FromString(data)
    except DecodeError as error:
        raise UserError("the file is no baseline, or is damaged", file=path, next_step=_AGAIN) from error
    if made.kind != KIND:
        raise UserError("the file is no baseline, or is damaged", file=path, next_step=_AGAIN)
    if made.format_version > FORMAT_VERSION:
        raise UserError(
            f"the baseline has format version {made.format_version}, this reads up to {FORMAT_VERSION}",
            file=path,
            next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
        )
    return [_run(one) for one in _inflated(made.runs, path).runs]


def _read(path: str, size: int) -> bytes:
    try:
        return read_range(path, 0, size)
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"cannot be read ({why})", file=path, next_step="Check the path and its mode"
        ) from error


def _inflated(data: bytes, path: str) -> pb.BaselineRuns:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, _MOST_INFLATED)
        made: pb.BaselineRuns = pb.BaselineRuns.FromString(raw)
    except (zlib.error, DecodeError) as error:
        raise UserError("the baseline is damaged", file=path, next_step=_AGAIN) from error
    if not stream.eof or not made.runs:
        raise UserError("the baseline is cut off", file=path, next_step=_AGAIN)
    return made


def _fitting(runs: Sequence[MeasuredRun], plugin_version: str) -> bytes:
    samples = MOST_SAMPLES
    while samples > 1:
        rows = pb.BaselineRuns(runs=[_message(one, samples) for one in runs])
        packed = zlib.compress(rows.SerializeToString(deterministic=True), 9)
        made = pb.Baseline(
            kind=KIND, format_version=FORMAT_VERSION, plugin_version=plugin_version, runs=packed
        )
        data: bytes = made.SerializeToString(deterministic=True)
        if len(data) <= MOST_BYTES:
            return data
        samples //= 2
    raise UserError(
        f"{len(runs)} runs take more than {MOST_BYTES // 1000} kB, whatever is left out",
        next_step="Save fewer",
    )


_HEAD = pb.Baseline(kind=KIND).SerializeToString(deterministic=True)


def _message(one: MeasuredRun, samples: int) -> pb.BaselineRun:
    """What is None is not set."""
    return pb.BaselineRun(
        name=one.name,
        devices=one.devices,
        torch_version=one.torch or None,
        ranks=one.ranks,
        world_size=one.world_size,
        measures=[_measure_message(name, measure, samples) for name, measure in one.measures.items()],
    )


def _measure_message(name: str, one: Measure, samples: int) -> pb.BaselineMeasure:
    return pb.BaselineMeasure(
        metric=name,
        value=one.value,
        why_unknown=one.why_unknown,
        samples=_thinned(one.samples, samples),
        items=[_item_message(item, samples) for item in one.items],
        needs_runs=one.needs_runs,
    )


def _item_message(one: MeasuredItem, samples: int) -> pb.BaselineItem:
    fields = {name: getattr(one, name) for name in ("what", "why", "file", "line", "value", "launches")}
    return pb.BaselineItem(**fields, samples=_thinned(one.samples, samples))


def _thinned(samples: list[int], most: int) -> list[int]:
    """The same steps of each item, so that they add up."""
    return samples[:: -(-len(samples) // most)] if samples else []


def _run(one: pb.BaselineRun) -> MeasuredRun:
    return MeasuredRun(
        name=one.name,
        devices=list(one.devices),
        torch=one.torch_version,
        ranks=one.ranks,
        world_size=one.world_size,
        measures={row.metric: _measure(row) for row in one.measures},
    )


def _measure(row: pb.BaselineMeasure) -> Measure:
    items = [_item(item) for item in row.items]
    return Measure(known_number(row, "value"), list(row.samples), items, row.why_unknown, row.needs_runs)


def _item(row: pb.BaselineItem) -> MeasuredItem:
    line, samples = known_number(row, "line"), list(row.samples)
    return MeasuredItem(row.what, row.why, row.file, line, row.value, samples, row.launches)
