"""What the compiler was at, when: its timed functions on the host, each with its phase."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from tb_torchcompile_plugin.compile_log.record import Key, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, PhaseSpan
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.records import BACKEND_CALLS, Phase, phase_inside, phase_of_backend


class HostSpan(NamedTuple):
    """One timed function, or a compilation of which nothing inside is known."""

    start_ns: int
    end_ns: int
    phase: Phase
    key: Key


def compiling(data: CompileData) -> list[HostSpan]:
    """In order of time, outer ones first. Work of compile workers is not the host's, and left out."""
    summary = data.summary
    spans = sorted(
        (span for span in summary.spans if not span.worker_process and span.duration_ns),
        key=lambda span: (span.start_ns, -span.duration_ns),
    )
    phased = _with_phases(spans)
    whole = [_whole(row) for row in summary.compilations if _is_opaque(row)]
    return sorted([*whole, *phased], key=lambda one: (one.start_ns, -one.end_ns))


def _is_opaque(row: Compilation) -> bool:
    return row.HasField("start_ns") and row.HasField("duration_ns") and not row.phases


def _whole(row: Compilation) -> HostSpan:
    return HostSpan(row.start_ns, row.start_ns + row.duration_ns, "other", key_of(row.key))


def _with_phases(spans: list[PhaseSpan]) -> list[HostSpan]:
    """By the rules of `compile_log.spans`, which has the marks of a process that still runs."""
    phases: list[Phase] = []
    lanes: dict[Hashable, list[int]] = {}
    calls: dict[int, bool] = {}  # of the backend → whether AOTAutograd ran in it
    for place, span in enumerate(spans):
        stack = lanes.setdefault((span.thread, key_of(span.key)), [])
        while stack and _end(spans[stack[-1]]) <= span.start_ns:
            stack.pop()
        phase = phase_inside(span.name, span.function, phases[stack[-1]] if stack else None)
        phases.append(phase)
        if phase == "aot_autograd":
            calls.update((outer, True) for outer in stack if outer in calls)
        if span.name in BACKEND_CALLS:
            calls[place] = False
        stack.append(place)
    for place, aot in calls.items():
        phases[place] = phase_of_backend(aot=aot)
    return [
        HostSpan(span.start_ns, _end(span), phase, key_of(span.key)) for span, phase in zip(spans, phases)
    ]


def _end(span: PhaseSpan) -> int:
    return span.start_ns + span.duration_ns


def last_end_ns(rows: Iterable[HostSpan]) -> int:
    return max(row.end_ns for row in rows)
