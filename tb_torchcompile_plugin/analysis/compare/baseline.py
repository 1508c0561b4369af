"""Where are the measured runs of a gate kept? In baseline files of at most 200 kB: same runs, same bytes."""

import zlib
from collections.abc import Sequence
from math import inf

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.analysis.compare import baseline_pb2 as pb
from tb_torchcompile_plugin.analysis.compare.gate_metrics import MAX_SAMPLES, METRICS, MeasuredRun, thinned
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import filesystem

SUFFIX = ".tbtc"
# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
MAX_BYTES = 200_000  # of a file: small enough to be committed
KIND = "tb_torchcompile_plugin baseline"
_HEAD = pb.Baseline(kind=KIND).SerializeToString(deterministic=True)
_MAX_INFLATED = 64 << 20  # bytes; far more than such a file can hold, and memory is bounded
_WITHOUT = "the baseline was saved without it: save it again"  # by an older version, or by hand
_AGAIN = "Save it again with: tb-torchcompile baseline save RUN FILE"


def is_baseline(path: str) -> bool:
    """Return whether a file is a baseline, or has its suffix. Raises UserError where a store cannot be read."""
    if path.endswith(SUFFIX):
        return True
    file = filesystem.remote_file(path) if filesystem.is_remote(path) else filesystem.local_file(path)
    return file is not None and _read(path, len(_HEAD)) == _HEAD


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
                f"{len(runs)} runs take more than {MAX_BYTES // 1000} kB, whatever is left out",
                next_step="Save fewer",
            )
    with filesystem.explain_write_errors(path):
        filesystem.write_whole(path, data)
    return len(data)


def _packed(runs: Sequence[MeasuredRun], version: str, samples: int) -> bytes:
    rows = pb.BaselineRuns(runs=[_message(run, samples) for run in runs])
    packed = zlib.compress(rows.SerializeToString(deterministic=True), 9)
    baseline = pb.Baseline(kind=KIND, format_version=FORMAT_VERSION, plugin_version=version, runs=packed)
    data: bytes = baseline.SerializeToString(deterministic=True)
    return data


def _message(run: MeasuredRun, samples: int) -> pb.BaselineRun:
    """Return a run as it is written: its fields are those of the message, but for lists in place of what is by name."""
    fields = msgspec.to_builtins(run)
    program = fields["program"]
    fields |= {"devices": program.pop("devices"), "torch_version": program.pop("torch") or None}
    program["sizes"] = [{"numbers": numbers} for numbers in program["sizes"]]
    del program["compiled"]
    fields["measures"] = [{"metric": name, **measure} for name, measure in fields["measures"].items()]
    for measure in fields["measures"]:
        for part in (measure, *measure["items"]):
            part["samples"] = thinned(part["samples"], samples)
    message: pb.BaselineRun = ParseDict(fields, pb.BaselineRun())
    return message


def load(path: str) -> list[MeasuredRun]:
    """Read a baseline. Raises UserError where it cannot be read, is damaged or is of a newer format."""
    try:
        # a file of a newer version may be larger: it is refused for its version then
        baseline = pb.Baseline.FromString(_read(path, 4 * MAX_BYTES))
    except DecodeError:
        baseline = pb.Baseline()
    if baseline.kind != KIND:
        raise UserError("the file is no baseline, or is damaged", file=path, next_step=_AGAIN)
    if baseline.format_version > FORMAT_VERSION:
        raise UserError(
            f"the baseline has format version {baseline.format_version}, this reads up to {FORMAT_VERSION}",
            file=path,
            next_step="Upgrade with: pip install --upgrade tb-torchcompile-plugin",
        )
    runs = [_run(run) for run in _inflated(baseline.runs, path).runs]
    numbers = [number for run in runs for number in (run.program.tflop or 1.0, *run.program.calls.values())]
    if not all(0 < number < inf for number in numbers):
        raise UserError("the baseline holds impossible numbers", file=path, next_step=_AGAIN)
    return runs


def _run(message: pb.BaselineRun) -> MeasuredRun:
    fields = MessageToDict(message, preserving_proto_field_name=True)
    program = fields.setdefault("program", {})
    program |= {"devices": fields.pop("devices", []), "torch": fields.pop("torch_version", "")}
    program["sizes"] = [sizes.get("numbers", []) for sizes in program.get("sizes", [])]
    measures = {measure.pop("metric", ""): measure for measure in fields.get("measures", [])}
    fields["measures"] = {name: measures.get(name, {"why_unknown": _WITHOUT}) for name in METRICS}
    return msgspec.convert(fields, MeasuredRun, strict=False)  # protobuf writes large numbers as texts


def _read(path: str, size: int) -> bytes:
    try:
        return filesystem.read_range(path, 0, size)
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"cannot be read ({why})", file=path, next_step="Check the path and its mode"
        ) from error


def _inflated(data: bytes, path: str) -> pb.BaselineRuns:
    stream = zlib.decompressobj()
    try:
        runs: pb.BaselineRuns = pb.BaselineRuns.FromString(stream.decompress(data, _MAX_INFLATED))
    except (zlib.error, DecodeError) as error:
        raise UserError("the baseline is damaged", file=path, next_step=_AGAIN) from error
    if not stream.eof or not runs.runs:
        raise UserError("the baseline is cut off", file=path, next_step=_AGAIN)
    return runs
