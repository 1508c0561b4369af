"""What does a gate measure of a run? Steps, kernels, memory, compile time and counts, as integers (ns, bytes).

Measured runs are kept in baseline files and compared.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError

from tb_torchcompile_plugin.analysis.causes.break_costs import break_sites
from tb_torchcompile_plugin.analysis.compare import baseline_pb2 as pb
from tb_torchcompile_plugin.analysis.compare.jobs import job_step_ns
from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.formatting import device_name, plural
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, file_name, program, program_of_data
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import mean_parts
from tb_torchcompile_plugin.compile_log.counts import COUNTS, CountName, counted_rows, merge_equal_rows
from tb_torchcompile_plugin.compile_log.record import direction_of, optional_number
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.make import recorded_number
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.steps import job_step_us
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching, step_lengths, step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import name_across_runs

# What is kept of a run, so that a baseline file stays below 200 kB.
MAX_SAMPLES = 64  # steps
MAX_ITEMS = 500  # of a measure: those with the largest values
_MAX_CHARS = 240  # of a name or a reason
_PATH_PARTS = 2  # of a file: a baseline is committed, and must not show where it was recorded

_NO_TRACE = "it has no trace"
_NO_STEPS = "no steps were marked: profile with a schedule, and call profiler.step()"

Unit = Literal["time", "bytes", "count"]


class MeasuredItem(msgspec.Struct, frozen=True):
    """A part of a measure: a kernel, a break."""

    what: str = ""
    why: str = ""  # torch's reason, "" for none
    file: str = ""
    line: int | None = None
    value: int = 0
    samples: list[int] = []  # by step, [] without
    launches: int = 0  # of a kernel in a step

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in another run: lines and folders may differ."""
        return self.what, self.why, self.file.rpartition("/")[2]


class Measure(msgspec.Struct, frozen=True):
    """One metric of a run."""

    value: int | None = None  # None where unknown
    samples: list[int] = []  # by step; of many steps, some
    items: list[MeasuredItem] = []
    why_unknown: str = ""
    needs_runs: bool = False  # whether only several runs show the noise, as each is slow as a whole


class MeasuredRun(msgspec.Struct, frozen=True):
    """One run."""

    name: str = ""
    program: ProgramFacts = ProgramFacts()
    ranks: int = 0  # that were recorded
    world_size: int = 0
    measures: dict[str, Measure] = {}  # by metric


class RunSource(NamedTuple):
    """What a run is measured by."""

    name: str
    profiles: list[Profile]  # one of each rank
    data: list[CompileData]  # one of each rank
    job: TracedJob | None  # the ranks together, None for one
    ranks: int


class GateMetric(NamedTuple):
    """How a metric is measured and judged."""

    label: str
    unit: Unit
    # exact: each change counts. needed: a change must be more than noise, and is inconclusive where that is unknown.
    # known: a change must be more than noise where several runs show it.
    noise: Literal["exact", "known", "needed"]
    measure: Callable[[RunSource], Measure]
    by_name: bool = False  # whether a pattern may choose among its items


def measure_run(source: RunSource) -> MeasuredRun:
    """Measure all that a gate may ask of a run."""
    environments = [data.summary.environment for data in source.data]
    traced_sizes = [recorded_number(profile.trace, "world_size") for profile in source.profiles]
    sizes = [*traced_sizes, *(environment.world_size for environment in environments)]
    return MeasuredRun(
        name=source.name,
        program=_program(source),
        ranks=source.ranks,
        world_size=max((size for size in sizes if size), default=source.ranks),
        measures={name: metric.measure(source) for name, metric in METRICS.items()},
    )


def _program(source: RunSource) -> ProgramFacts:
    """Return what the first rank ran, on the devices of all."""
    known = [profile.of(program) for profile in source.profiles]
    known = known or [data.of(program_of_data) for data in source.data]
    if not known:
        return ProgramFacts()
    devices = sorted({device for rank in known for device in rank.devices})
    script = file_name(known[0].script)
    return msgspec.structs.replace(known[0], devices=devices, script=script, compiled=None)


def unknown_measure(why: str) -> Measure:
    """Return a measure without a value."""
    return Measure(None, why_unknown=why)


def rounded_median(samples: list[int]) -> int:
    """Return the median, which one slow step does not move."""
    return round(median(samples))


def _kept(samples: list[int]) -> list[int]:
    """Return the samples, or of very many some at even distances."""
    if len(samples) <= MAX_SAMPLES:
        return samples
    indices = np.linspace(0, len(samples) - 1, MAX_SAMPLES).round().astype(int)
    return [samples[index] for index in indices]


def _largest(items: list[MeasuredItem]) -> list[MeasuredItem]:
    return sorted(items, key=lambda item: (-item.value, item.key, item.line or 0))[:MAX_ITEMS]


def _item(what: str, why: str, file: str, line: int | None, value: int) -> MeasuredItem:
    """Return an item with the end of its path, and texts of limited length."""
    path = "/".join(file.replace("\\", "/").split("/")[-_PATH_PARTS:])
    return MeasuredItem(what[:_MAX_CHARS], why[:_MAX_CHARS], path, line, value)


def _steps(source: RunSource) -> Measure:
    """Measure steps on the slower clock, of a job on the slowest rank; items: what a step waits for."""
    if not source.profiles:
        return unknown_measure(_NO_TRACE)
    slowest = max(source.profiles, key=lambda profile: profile.of(step_time).step_us)
    lengths = source.job.of(job_step_ns) if source.job else slowest.of(step_lengths).tolist()
    if not lengths:
        return unknown_measure(_NO_STEPS)
    items = [
        _item("graph break", site.reason, site.file, site.line, round(1000 * site.saves_us))
        for site in slowest.of(break_sites)
        if site.saves_us
    ]
    # Why a GPU idles or, without one, what the host does.
    for part in slowest.of(mean_parts):
        if part.kind in ("idle", "host"):
            does = "the GPU idles" if part.kind == "idle" else "the host"
            items.append(
                MeasuredItem(f"{does}: {part.part.replace('_', ' ')}", value=round(1000 * part.time_us))
            )
    step_us = (source.job.of(job_step_us) if source.job else None) or slowest.of(step_time).step_us
    return Measure(round(1000 * step_us), _kept(lengths), _largest(items))


def _kernels(source: RunSource) -> Measure:
    """Measure kernels by names without inductor's running numbers; of a job the mean of its ranks.

    A core that others share is slow for all of a short run: for kernels on the CPU, one run does not show the noise.
    """
    if not source.profiles:
        return unknown_measure(_NO_TRACE)
    count = min(len(profile.of(StepWindows)) for profile in source.profiles)
    if not count:
        return unknown_measure(_NO_STEPS)
    by_kind = _by_kind(source.profiles, count)
    if not by_kind:
        return unknown_measure(
            "no kernel was recorded; on the CPU: TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
        )
    # The user's line of each kind, of the kernel that takes most time.
    rows = reversed(source.profiles[0].of(kernel_table).rows)
    lines, ranks = (
        {name_across_runs(row.name): row.lines[-1] for row in rows if row.lines},
        len(source.profiles),
    )
    items = []
    for kind, sums in by_kind.items():
        ns, launches = (sums // ranks).tolist()
        line = lines.get(kind)
        item = _item(kind, "", line.file if line else "", line.line if line else None, rounded_median(ns))
        items.append(msgspec.structs.replace(item, samples=_kept(ns), launches=rounded_median(launches)))
    on_host = any(rows.device == "cpu" for profile in source.profiles for rows in profile.of(kernel_launches))
    whole: list[int] = (np.sum([*by_kind.values()], axis=0)[0] // ranks).tolist()
    return Measure(rounded_median(whole), _kept(whole), _largest(items), needs_runs=on_host)


def _by_kind(profiles: list[Profile], count: int) -> dict[str, Int64s]:
    """Return ns and launches (rows) of each kind by step (columns), summed over ranks."""
    by_kind: defaultdict[str, Int64s] = defaultdict(lambda: np.zeros((2, count), np.int64))
    for profile in profiles:
        windows, names = profile.of(StepWindows), profile.trace.names
        for rows in profile.of(kernel_launches):
            step = launching(windows.windows, profile.trace, rows.launch)
            inside = (step >= 0) & (step < count)
            for name in np.unique(rows.name[inside]).tolist():
                selected = inside & (rows.name == name)
                ns, launches = by_kind[name_across_runs(names[name])]
                np.add.at(ns, step[selected], rows.dur[selected])
                np.add.at(launches, step[selected], 1)
    return dict(by_kind)


def _memory_peak(source: RunSource) -> Measure:
    """Measure the peak of the device that needs most; of the GPUs where there are any."""
    if not source.profiles:
        return unknown_measure(_NO_TRACE)
    devices = [row for profile in source.profiles for row in profile.of(memory).devices]
    devices = [row for row in devices if row.device != "cpu"] or devices
    if not devices:
        return unknown_measure("memory was not recorded: profile with profile_memory=True")
    items = [MeasuredItem(device_name(row.device), value=row.peak_bytes) for row in devices]
    return Measure(max(item.value for item in items), items=_largest(items))


def _compile_time(source: RunSource) -> Measure:
    """Measure the rank that compiles longest; items: its compilations by function."""
    totals = [(total, data) for data in source.data if (total := data.of(compile_time.total_s)) is not None]
    if len(totals) < max(source.ranks, 1):
        why = "torch did not say how long compilations took" if source.data else "it has no compile data"
        return unknown_measure(why)
    if damaged := _why_damaged(source):
        return unknown_measure(damaged)
    total, longest = max(totals, key=lambda item: item[0])
    sums: defaultdict[tuple[str, str, str, int | None], int] = defaultdict(int)
    for row in longest.summary.compilations:
        key = (row.function, direction_of(row.direction), row.file, optional_number(row, "line"))
        sums[key] += row.duration_ns
    return Measure(round(1e9 * total), items=_largest([_item(*key, ns) for key, ns in sums.items() if ns]))


def _why_damaged(source: RunSource) -> str:
    """Return why fewer things may be counted than there were, "" where all was read."""
    lost = sum(sum(data.summary.records.unreadable.values()) for data in source.data)
    return f"{plural(lost, 'record')} of its compile data could not be read" if lost else ""


def _count(name: CountName, source: RunSource) -> Measure:
    """Count on all ranks together, so that one that differs shows."""
    missing = source.ranks - len(source.data)
    if missing > 0:
        which = f"{missing} of {source.ranks} ranks have" if source.data else "it has"
        return unknown_measure(f"{which} no compile data (an eager run has none)")
    if damaged := _why_damaged(source):
        return unknown_measure(damaged)
    rows = [counted_rows(data.summary, name) for data in source.data]
    if None in rows:
        return unknown_measure(COUNTS[name].why_not)
    items = [_item(*row) for row in merge_equal_rows(chain.from_iterable(filter(None, rows)))]
    return Measure(sum(item.value for item in items), items=_largest(items))


METRICS: dict[str, GateMetric] = {
    "step": GateMetric("Step time", "time", "needed", _steps),
    "kernel": GateMetric("Kernel time of a step", "time", "needed", _kernels, by_name=True),
    "memory": GateMetric("Peak memory", "bytes", "known", _memory_peak),
    "compile": GateMetric("Compile time", "time", "needed", _compile_time),
    **{
        name: GateMetric(kind.many[:1].upper() + kind.many[1:], "count", "exact", partial(_count, name))
        for name, kind in COUNTS.items()
    },
}


SUFFIX = ".tbtc"
# Raised when an older reader would misread the file. Added fields alone do not raise it: protobuf skips them.
FORMAT_VERSION = 1
MAX_BYTES = 200_000  # of a file: small enough to be committed
KIND = "tb_torchcompile_plugin baseline"
_HEAD = pb.Baseline(kind=KIND).SerializeToString(deterministic=True)
_MAX_INFLATED = 64 << 20  # bytes; far more than such a file can hold, and memory is bounded
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
            part["samples"] = _thinned(part["samples"], samples)
    message: pb.BaselineRun = ParseDict(fields, pb.BaselineRun())
    return message


def _thinned(samples: list[int], most: int) -> list[int]:
    """Return the same steps of each item, so that they add up."""
    return samples[:: -(-len(samples) // most)] if samples else []


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
    return [_run(run) for run in _inflated(baseline.runs, path).runs]


def _run(message: pb.BaselineRun) -> MeasuredRun:
    fields = MessageToDict(message, preserving_proto_field_name=True)
    program = fields.setdefault("program", {})
    program |= {"devices": fields.pop("devices", []), "torch": fields.pop("torch_version", "")}
    program["sizes"] = [sizes.get("numbers", []) for sizes in program.get("sizes", [])]
    fields["measures"] = {measure.pop("metric", ""): measure for measure in fields.get("measures", [])}
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
