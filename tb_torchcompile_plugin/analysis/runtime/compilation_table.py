"""What was compiled, with which outcome, how often did it run, and what did a call take?

One row per compilation, joined to the compiled region of the span that ran it. What ran without a compilation of its
own has a row, too: everything where there is no compile data, and a backward graph that was compiled with its forward.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from tb_torchcompile_plugin.analysis.compile.compilations import (
    Caller,
    Compilation,
    OtherArtifacts,
    Status,
    callers,
    compilations,
    other_artifacts,
    status_headline,
)
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import (
    CompiledRegion,
    compiled_regions,
    frame_times,
    headline,
)
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import requested_graphs
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import readable_function

_FRAMES_UNKNOWN = (
    "Which regions belong to one frame is unknown: record with the trace handler of this package, "
    "or with `with_stack=True`."
)


class CompilationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A compilation, and what a call of it took in the span."""

    key: str
    compile_id: str
    epoch: int
    status: Status | None = None  # None where only the trace shows it
    direction: Annotated[str, column_head(hidden=True)]  # "backward 2 of 2" where DDP split the graph
    function: Annotated[str, column_head(grow=True)] = ""
    file: str = ""
    line: int | None = None
    duration_s: Annotated[float | None, column_head("Compile time", bar=True, total=True)] = None
    calls: int | None = None  # None where the span did not run it
    guard_us_per_call: Annotated[float | None, column_head("Guards per call")] = None
    host_us_per_call: float | None = None  # without nested regions
    gpu_us_per_call: float | None = None
    overhead_us_per_call: Annotated[float | None, column_head("Wrapper per call", hidden=True)] = None
    graph_us_per_call: Annotated[float | None, column_head("Graph per call", hidden=True)] = None
    graph_ops: Annotated[int | None, column_head("Operations", hidden=True)] = None
    breaks: Annotated[int | None, column_head("Graph breaks", hidden=True)] = None
    guards: Annotated[int | None, column_head(hidden=True)] = None
    attempts: Annotated[int | None, column_head(hidden=True)] = None
    slices: str = ""  # what the timeline is searched for


class CompilationTable(msgspec.Struct, frozen=True):
    """All compilations of a process. uses_cuda_graphs: whether any was to run as a CUDA graph."""

    sentences: tuple[str, ...]
    compilations: tuple[CompilationRow, ...]
    callers: tuple[Caller, ...]
    others: tuple[OtherArtifacts, ...]
    uses_cuda_graphs: bool


def compilation_table(about: Profile | CompileData) -> CompilationTable:
    """Return what was compiled, and how a span ran it."""
    profile = about if isinstance(about, Profile) else None
    data = about if isinstance(about, CompileData) else about.data
    regions = profile.of(compiled_regions) if profile else []
    sentences = [data.of(status_headline)] if data else []
    if profile:
        sentences.append(profile.of(headline))
        sentences += [_FRAMES_UNKNOWN] if regions and profile.of(frame_times) is None else []
    return CompilationTable(
        sentences=tuple(sentences),
        compilations=tuple(_rows(data.of(compilations) if data else [], regions)),
        callers=tuple(data.of(callers)) if data else (),
        others=tuple(data.of(other_artifacts)) if data else (),
        uses_cuda_graphs=bool(profile and profile.of(requested_graphs)),
    )


_SAME = (
    "key",
    "compile_id",
    "epoch",
    "status",
    "file",
    "line",
    "duration_s",
    "graph_ops",
    "guards",
    "attempts",
)


def _rows(compiled: list[Compilation], regions: list[CompiledRegion]) -> Iterator[CompilationRow]:
    """Yield the compilations in order of time, then what ran without one."""
    ran = {fields["key"]: fields for region in regions for fields in _calls(region)}
    for row in compiled:
        fields = {"slices": row.compile_id, **ran.pop(row.key, {})}
        fields |= {name: getattr(row, name) for name in _SAME}
        fields["direction"] = (
            f"{row.direction} {row.part + 1} of {row.parts}" if row.parts > 1 else row.direction
        )
        fields["function"] = readable_function(row.function)
        yield CompilationRow(**fields, breaks=row.breaks if row.direction == "forward" else None)
    yield from (CompilationRow(**fields) for fields in ran.values())


def _calls(region: CompiledRegion) -> Iterator[dict[str, Any]]:
    """Yield the fields of a row for the forward calls of a region, and for those of its backward."""
    gpu_us = None if region.gpu_us is None else region.gpu_us - (region.backward_gpu_us or 0)
    parts = {"guard": region.guard_us, "overhead": region.overhead_us, "graph": region.graph_us}
    forward = {**parts, "host": region.cpu_us, "gpu": gpu_us}
    backward = {"host": region.backward_cpu_us, "gpu": region.backward_gpu_us}
    for direction, calls, totals in (
        ("forward", region.calls, forward),
        ("backward", region.backward_calls, backward),
    ):
        key = f"{region.compile_id},{region.epoch},{direction}"
        if calls:
            yield {
                "key": region.compilation or key if direction == "forward" else key,
                "compile_id": region.compile_id,
                "epoch": region.epoch,
                "direction": direction,
                "function": readable_function(region.function or ""),
                "calls": calls,
                "slices": f"Region: {region.compile_id}",
                **{f"{name}_us_per_call": us / calls for name, us in totals.items() if us is not None},
            }
