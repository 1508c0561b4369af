"""Show how Triton compiled inductor's kernels: registers, spills, shared memory, and the time of each configuration."""

from typing import Annotated, Any

import msgspec

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, plural_of_mean
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import Direction, direction_of, key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompiledKernel as CompiledKernelMessage
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData

_TRITONPARSE = (
    "For the cost of each line of a kernel and a reproducer, see https://github.com/meta-pytorch/tritonparse."
)
_NOT_RECORDED = (
    "No Triton kernels were recorded. Create the handler before compiling, with triton=True. "
    "Inductor generates no Triton kernels for a CPU."
)


class Configuration(msgspec.Struct, frozen=True):
    """A configuration of a kernel, as Triton compiled it."""

    compile_id: str
    epoch: int
    direction: Annotated[Direction, column_head(hidden=True)]
    kernel: str
    config: str
    registers: int | None  # of a thread
    spills: int | None  # of a thread
    shared_bytes: Annotated[int | None, column_head("Shared memory")]  # of a block


class CompiledKernel(Configuration, frozen=True):
    """A kernel of a graph in the configuration in use."""

    num_warps: Annotated[int | None, column_head("Warps")]
    num_stages: Annotated[int | None, column_head("Stages")]
    target: Annotated[str | None, column_head(hidden=True)]
    time_us: Annotated[float | None, column_head("Tuned time", bar=True)]
    configs: Annotated[int, column_head("Configurations")]
    # How much longer the slowest configuration takes than this one.
    slowest_percent: Annotated[float | None, column_head("Slowdown of the slowest")]


class Candidate(Configuration, frozen=True):
    """A configuration of a kernel, or a template of an operator, that was tried."""

    time_us: Annotated[float | None, column_head("Time", bar=True)]
    slower_percent: Annotated[float | None, column_head("Slowdown")]  # than the fastest
    chosen: bool


class Triton(msgspec.Struct, frozen=True):
    """The generated Triton kernels."""

    sentences: tuple[str, ...]
    # The kernels that spill first, then by registers.
    triton_kernels: Annotated[tuple[CompiledKernel, ...], column_head("Kernels")]
    candidates: Annotated[tuple[Candidate, ...], column_head("Configurations that were tried")]


def triton(data: CompileData) -> Triton:
    """Return the compiled kernels and what was tried for them; nothing where the handler did not record Triton."""
    kernels, tried = [], []
    messages = data.summary.compiled_kernels
    for rows in grouped(messages, lambda row: (key_of(row.key), row.direction, row.name)).values():
        times = [row.time_us for row in rows if row.HasField("time_us")]
        best = min(times, default=None)
        # Fastest first, then those without a time.
        by_time = sorted(rows, key=lambda row: (not row.HasField("time_us"), row.time_us))
        for row in by_time if len(rows) > 1 else ():
            slower_percent = 100 * (row.time_us / best - 1) if best and row.HasField("time_us") else None
            tried.append(Candidate(**_common_fields(row), slower_percent=slower_percent, chosen=row.chosen))
        if rows[0].cache_key:
            row = next((row for row in rows if row.chosen), rows[0])
            time_us = row.time_us if row.HasField("time_us") else None
            kernels.append(
                CompiledKernel(
                    **_common_fields(row),
                    num_warps=optional_number(row, "num_warps"),
                    num_stages=optional_number(row, "num_stages"),
                    target=row.target or None,
                    configs=len(rows),
                    slowest_percent=100 * (max(times) / time_us - 1) if time_us and len(times) > 1 else None,
                )
            )
    kernels.sort(key=lambda row: (-(row.spills or 0), -(row.registers or 0)))
    return Triton(_sentences(kernels, tried), tuple(kernels), tuple(tried))


def _common_fields(row: CompiledKernelMessage) -> dict[str, Any]:
    return {
        "compile_id": row.key.compile_id,
        "epoch": row.key.epoch,
        "direction": direction_of(row.direction),
        "kernel": row.name,
        "config": row.config,
        "registers": optional_number(row, "registers"),
        "spills": optional_number(row, "spills"),
        "shared_bytes": optional_number(row, "shared_bytes"),
        "time_us": row.time_us if row.HasField("time_us") else None,
    }


def _sentences(kernels: list[CompiledKernel], tried: list[Candidate]) -> tuple[str, ...]:
    if not kernels and not tried:
        return (_NOT_RECORDED,)
    spilling = [row for row in kernels if row.spills]
    spills = f"{plural_of_mean(len(spilling), 'spills', 'spill')} registers to memory"
    lines = [
        f"Of {plural(len(kernels), 'Triton kernel')}, {spills if spilling else 'none spills registers to memory'}."
    ]
    if spilling:
        row = spilling[0]
        registers = plural(row.spills or 0, "register")
        lines.append(f"{row.kernel} spills {registers} per thread and uses {row.registers} registers.")
    timed = [row for row in tried if row.slower_percent is not None]
    slowest = max(timed, key=lambda row: row.slower_percent or 0, default=None)
    if slowest is not None and slowest.slower_percent:
        time, more = duration(slowest.time_us or 0), percent(slowest.slower_percent)
        lines.append(
            f"{plural(len(timed), 'configuration')} were measured. The slowest one of {slowest.kernel} takes {time}, "
            f"{more} more than the fastest."
        )
    return (*lines, _TRITONPARSE)
