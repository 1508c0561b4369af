"""Show which CPU threads worked, and how the C++ kernels that inductor generated run.

A thread works while an operator, a compiled graph or the compiler is recorded on it. No trace records OpenMP's threads
inside a kernel: the generated code shows how many it asks for, and whether its loops are vectorized.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.profile.columns import by_track
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, share_percent, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.artifacts import PARALLEL, VECTORS
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

Loops = Literal["vectorized", "scalar"]
_NAMES_KERNELS = "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 python train.py"


class CpuThread(msgspec.Struct, frozen=True):
    """A thread that worked."""

    thread: str
    busy_us: float
    busy_percent: float | None  # of the span
    calls: int  # of operators, and of what is recorded as operators are


class CpuKernel(msgspec.Struct, frozen=True):
    """A generated C++ kernel."""

    kernel: Annotated[str, column_head("Kernel", grow=True)]
    compile_id: str | None
    time_us: float
    share_percent: float  # of the time of all generated kernels
    calls: int
    loops: Loops | None  # None without the code
    threads: int | None  # None without the code, and where OpenMP chooses
    file: str | None
    line: int | None
    kernel_row: str


class Cpu(msgspec.Struct, frozen=True):
    """Threads and kernels, the busiest first."""

    sentences: tuple[str, ...]
    threads: tuple[CpuThread, ...]
    cpu_kernels: Annotated[tuple[CpuKernel, ...], column_head("Generated kernels")]
    code: str | None  # what records the kernels, where they were not recorded


def cpu(profile: Profile) -> Cpu:
    """Return the threads and generated kernels of a span, whether it has a GPU or not."""
    trace, index = profile.trace, profile.trace.select(cat=(OPERATOR,))
    first, last = trace.window()
    threads: list[CpuThread] = []
    working: list[Intervals] = []
    for track, rows in by_track(trace, index):
        working.append(busy(trace, rows))
        name = trace.tracks[track].thread_name.strip() or f"thread {trace.tracks[track].tid}"
        time = working[-1].total_ns
        threads.append(CpuThread(name, us(time), share_percent(time, last - first), len(rows)))
    threads.sort(key=lambda thread: -thread.busy_us)
    kernels = [_kernel(profile, row) for row in profile.of(kernel_table).rows if row.device == "cpu"]
    kernels.sort(key=lambda kernel: -kernel.time_us)
    hint = profile.of(unnamed_cpu_kernels)
    sentences = [_threads_sentence(threads, working, last - first), *_kernel_sentences(kernels), hint]
    return Cpu(
        tuple(filter(None, sentences)), tuple(threads), tuple(kernels), _NAMES_KERNELS if hint else None
    )


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
        loops=None if source is None else "vectorized" if VECTORS.search(source) else "scalar",
        threads=None if source is None else _threads_asked_for(source),
        file=line.file if line else None,
        line=line.line if line else None,
        kernel_row=row.key,
    )


def _threads_asked_for(source: str) -> int | None:
    """Return the most threads of any parallel loop, 1 without such a loop; None where OpenMP chooses."""
    loops = list(PARALLEL.finditer(source))
    if not loops:
        return 1
    numbers = [int(loop[1]) for loop in loops if loop[1]]
    return max(numbers) if len(numbers) == len(loops) else None


def _threads_sentence(threads: Sequence[CpuThread], working: Sequence[Intervals], span_ns: int) -> str:
    """Return "2 threads did work, main most of all (98 % of 242 ms). Two or more worked at once for 3.00 % …"."""
    if not threads:
        return "No operators, compiled graphs or compiler phases were recorded on any thread."
    most, part = threads[0], ""
    if most.busy_percent is not None:
        part = f" ({percent(most.busy_percent)} of {duration(us(span_ns))})"
    if len(threads) == 1:
        return f"One thread did all the recorded work: {most.thread}{part}."
    times: Int64s = np.concatenate([edges for intervals in working for edges in intervals])
    change = np.concatenate([np.r_[np.ones_like(starts), -np.ones_like(ends)] for starts, ends in working])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])[:-1]
    together_ns = int(np.diff(times[order])[running >= 2].sum())
    together = percent(share_percent(together_ns, span_ns) or 0.0)
    return (
        f"{plural(len(threads), 'thread')} worked, {most.thread} the most{part}. Two or more worked at the same "
        f"time for {together} of the span."
    )


def _kernel_sentences(kernels: list[CpuKernel]) -> Iterator[str]:
    """Yield what the generated code shows of its kernels, as far as it was recorded."""
    with_code = [row for row in kernels if row.loops]
    if not with_code:
        return
    whole, number = sum(row.time_us for row in kernels), plural(len(kernels), "generated kernel")
    scalar = [row for row in with_code if row.loops == "scalar"]
    part = percent(100 * sum(row.time_us for row in scalar) / whole if whole else 0.0)
    vectorized = len(with_code) - len(scalar)
    yield (
        f"{number} took {duration(whole)}. {vectorized} have vectorized loops. {len(scalar)} have scalar loops, which "
        f"take {part} of this time."
    )
    if scalar:
        yield (
            "torch generates vectorized loops if its C++ compiler supports the CPU's vector instructions, the "
            "operations have a vector form, and neither torch._inductor.config.cpp.simdlen nor ATEN_CPU_CAPABILITY "
            "forbids it."
        )
    single = [row for row in with_code if row.threads == 1]
    if single:
        yield (
            f"{len(single)} of the kernels run on one thread: their loops are short, or torch.get_num_threads() was 1 "
            "when they were compiled."
        )
    if len(single) < len(with_code):
        yield "Traces do not show how long OpenMP threads waited for each other inside a kernel."
