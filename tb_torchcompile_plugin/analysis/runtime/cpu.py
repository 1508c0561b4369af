"""Where the work is the CPU's: which threads did it, and how the kernels that inductor generated in C++ run.

A thread worked while an operator, a compiled graph or the compiler was recorded on it. What threads of OpenMP do inside
of a kernel is in no trace: the generated code tells how many it asks for, and whether its loops go over vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import share_percent as share
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Track
from tb_torchcompile_plugin.torch_names.artifacts import PARALLEL, VECTORS
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

Loops = Literal["vectorised", "scalar"]
_NAMES_KERNELS = "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 python train.py"


class CpuThread(msgspec.Struct, frozen=True):
    """A thread that worked. busy_percent: of the span; calls: of operators and of what is recorded as they are."""

    thread: str
    busy_us: float
    busy_percent: float | None
    calls: int


class CpuKernel(msgspec.Struct, frozen=True):
    """A generated C++ kernel. share_percent: of the time of all of them. loops, threads: as its code says; None where
    the code is not at hand, or leaves the number of threads to OpenMP."""

    kernel: Annotated[str, head("Kernel", grow=True)]
    compile_id: str | None
    time_us: float
    share_percent: float
    calls: int
    loops: Loops | None
    threads: int | None
    file: str | None
    line: int | None
    kernel_row: str


class Cpu(msgspec.Struct, frozen=True):
    """Threads and kernels, the busiest first. code: what records the kernels, where they were not."""

    says: tuple[str, ...]
    threads: tuple[CpuThread, ...]
    cpu_kernels: Annotated[tuple[CpuKernel, ...], head("Generated kernels")]
    code: str | None


def cpu(profile: Profile) -> Cpu:
    """All of a span, whether it has a GPU or not."""
    threads = sorted(_threads(profile), key=lambda row: -row.busy_us)
    rows = [row for row in profile.of(kernel_table).rows if row.device == "cpu"]
    kernels = [_kernel(profile, row) for row in sorted(rows, key=lambda row: -row.time_us)]
    hint = profile.of(unnamed_cpu_kernels)
    says = (_worked(profile, threads), *_ran(kernels), *([hint] if hint else ()))
    return Cpu(says, tuple(threads), tuple(kernels), _NAMES_KERNELS if hint else None)


def _working(profile: Profile) -> list[tuple[Track, Int64s, Intervals]]:
    """Each thread that worked, its calls, and when it did."""
    trace, index = profile.trace, profile.trace.select(cat=(OPERATOR,))
    rows = ((track, index[trace.track[index] == track]) for track in np.unique(trace.track[index]).tolist())
    return [(trace.tracks[track], mine, busy(trace, mine)) for track, mine in rows]


def _threads(profile: Profile) -> Iterator[CpuThread]:
    first, last = profile.trace.window()
    for track, mine, worked in profile.of(_working):
        time = worked.total_ns
        yield CpuThread(_label(track), us(time), share(time, last - first), len(mine))


def _label(track: Track) -> str:
    return track.thread_name.strip() or f"thread {track.tid}"


def _together_ns(of_threads: list[Intervals]) -> int:
    """For how long two or more threads worked at once."""
    times: Int64s = np.concatenate([end for one in of_threads for end in one])
    change = np.concatenate([np.r_[np.ones_like(one.starts), -np.ones_like(one.ends)] for one in of_threads])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])[:-1]
    return int(np.diff(times[order])[running >= 2].sum())


def _kernel(profile: Profile, row: Kernel) -> CpuKernel:
    code = profile.of(generated_code).find(row.name, row.compile_id, row.graph_key, row.direction)
    source = code.definition.source if code else None
    line = next(iter(row.lines), None)
    return CpuKernel(
        kernel=row.name,
        compile_id=row.compile_id,
        time_us=row.time_us,
        share_percent=row.share_percent,
        calls=row.launches,
        loops=None if source is None else "vectorised" if VECTORS.search(source) else "scalar",
        threads=None if source is None else _asked_for(source),
        file=line.file if line else None,
        line=line.line if line else None,
        kernel_row=row.key,
    )


def _asked_for(source: str) -> int | None:
    """The most threads of any of its loops, 1 where none is shared; None where OpenMP decides."""
    shared = list(PARALLEL.finditer(source))
    if not shared:
        return 1
    numbers = [int(one[1]) for one in shared if one[1]]
    return max(numbers) if len(numbers) == len(shared) else None


def _worked(profile: Profile, threads: list[CpuThread]) -> str:
    """ "2 threads worked, most of all main: for 98.0 % of 242 ms; two or more at once for 3.00 % of it." """
    if not threads:
        return "No thread is known to have worked in this span."
    first, last = profile.trace.window()
    most = threads[0]
    part = (
        ""
        if most.busy_percent is None
        else f" for {percent(most.busy_percent)} of {duration(us(last - first))}"
    )
    if len(threads) == 1:
        return f"One thread did all the work that was recorded: {most.thread}{part}."
    together = _together_ns([worked for _, _, worked in profile.of(_working)])
    beside = share(together, last - first) or 0.0
    return (
        f"{plural(len(threads), 'thread')} worked, most of all {most.thread}{part}; two or more at once for "
        f"{percent(beside)} of it."
    )


def _ran(kernels: list[CpuKernel]) -> Iterator[str]:
    """What the generated code tells of its kernels, as far as it is at hand."""
    known = [row for row in kernels if row.loops]
    if not known:
        return
    whole, took = sum(row.time_us for row in kernels), f"{plural(len(kernels), 'generated kernel')} took"
    scalar = [row for row in known if row.loops == "scalar"]
    part = percent(100 * sum(row.time_us for row in scalar) / whole if whole else 0.0)
    yield (
        f"{took} {duration(whole)}: {len(known) - len(scalar)} go over vectors, {len(scalar)} number by number, "
        f"which is {part} of it."
    )
    if scalar:
        yield (
            "torch generates loops over vectors for CPUs that its C++ compiler can build for; not for operations that "
            "have no vector form, and not where torch._inductor.config.cpp.simdlen or ATEN_CPU_CAPABILITY forbids it."
        )
    alone = [row for row in known if row.threads == 1]
    if alone:
        yield (
            f"{len(alone)} of them run on one thread: their loops are short, or torch.get_num_threads() was 1 when "
            "they were compiled."
        )
    if len(alone) < len(known):
        yield "How long OpenMP's threads waited for each other inside of a kernel is in no trace."
