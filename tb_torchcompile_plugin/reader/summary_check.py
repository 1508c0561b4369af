"""What a compile summary holds that cannot be is taken out, and counted with the records that could not be read.

Sums of times fit into 64 bits, and phases sum to their compilation, as other modules expect.
"""

from collections import Counter
from itertools import accumulate
from typing import Any

import msgspec

from tb_torchcompile_plugin.compile_log import summary_pb2
from tb_torchcompile_plugin.errors import visible

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_TIMES_END_NS = 1 << 62  # in the year 2116
_DURATIONS_END_NS = 1 << 53  # 104 days
_MAX_SAMPLES = 1 << 24  # nine hours of one thread


def without_impossible(summary: summary_pb2.CompileSummary) -> summary_pb2.CompileSummary:
    """Fix a summary in place, and return it."""
    causes: Counter[str] = Counter()
    _fix_ids(summary)
    for compilation in summary.compilations:
        _fix_compilation(compilation, causes)
    for row in (*summary.compilations, *summary.runtime_metrics):
        for name in [name for name, text in row.metrics.items() if not _is_json(text)]:
            del row.metrics[name]
            causes["metrics that are not JSON"] += 1
    _fix_timed(summary, "spans", causes)
    for graph in summary.graphs:
        for kernel in graph.kernels:
            _clear(kernel, causes, compile_ns=_DURATIONS_END_NS)
    moments = ("recording_start_ns", "written_ns", "process_start_ns", "imported_ns")
    _clear(summary.environment, causes, **dict.fromkeys(moments, _TIMES_END_NS))
    _fix_timed(summary, "cache_transfers", causes)
    _fix_timed(summary, "compiler_calls", causes)
    _fix_steps(summary, causes)
    if summary.HasField("python_samples") and not _are_possible(summary.python_samples):
        summary.ClearField("python_samples")
        causes["PythonSamples: no columns of samples"] += 1
    for cause, count in causes.items():
        summary.records.unreadable[cause] += count
    return summary


def _fix_ids(summary: summary_pb2.CompileSummary) -> None:
    """Write compile ids as they are shown, so that what is shown can be asked for."""
    for field, rows in summary.ListFields():
        if field.message_type and "key" in field.message_type.fields_by_name:
            for row in rows:
                if not row.key.compile_id.isprintable():
                    row.key.compile_id = visible(row.key.compile_id)


def _fix_compilation(row: summary_pb2.Compilation, causes: Counter[str]) -> None:
    _clear(row, causes, start_ns=_TIMES_END_NS, duration_ns=_DURATIONS_END_NS)
    for lookup in row.cache:
        _clear(lookup, causes, time_saved_ns=_DURATIONS_END_NS, time_taken_ns=_DURATIONS_END_NS)
    if row.phases and sum(phase.exclusive_ns for phase in row.phases) != row.duration_ns:
        del row.phases[:]
        causes["phases that do not sum to their compilation"] += 1


def _is_json(text: str) -> bool:
    try:
        _check_json(text)
    except (msgspec.DecodeError, RecursionError):
        return text in ("NaN", "Infinity", "-Infinity")
    return True


def _fix_timed(summary: summary_pb2.CompileSummary, field: str, causes: Counter[str]) -> None:
    """Remove rows whose time cannot be: they mean nothing without it."""
    rows = getattr(summary, field)
    if impossible := [row for row in rows if not _is_possible(row)]:
        kept = [row for row in rows if _is_possible(row)]
        del rows[:]
        rows.extend(kept)
        causes[f"{type(impossible[0]).__name__}: no time"] += len(impossible)


def _is_possible(span: summary_pb2.PhaseSpan | summary_pb2.CacheTransfer | summary_pb2.CompilerCall) -> bool:
    return 0 <= span.start_ns < _TIMES_END_NS and 0 <= span.duration_ns < _DURATIONS_END_NS


def _fix_steps(summary: summary_pb2.CompileSummary, causes: Counter[str]) -> None:
    steps = summary.steps if summary.HasField("steps") else None
    if steps is None:
        return
    moments = [ns for row in steps.first for ns in (row.start_ns, row.end_ns)]
    if not all(0 < ns < _DURATIONS_END_NS for ns in (*steps.unrecorded_ns, *steps.recorded_ns)) or not all(
        0 <= ns < _TIMES_END_NS for ns in moments
    ):
        summary.ClearField("steps")
        causes["StepTimes: no time"] += 1


def _are_possible(samples: summary_pb2.PythonSamples) -> bool:
    """Whether the columns are parallel, their times are possible, and they point at what is there."""
    columns = (samples.start_ns, samples.duration_ns, samples.samples, samples.thread, samples.line)
    return (
        len({len(column) for column in columns}) == 1
        and all(0 <= ns < _TIMES_END_NS for ns in accumulate(samples.start_ns))
        and max(samples.duration_ns, default=0) < _DURATIONS_END_NS
        and min(samples.samples, default=1) > 0
        and sum(samples.samples) < _MAX_SAMPLES
        and max(samples.thread, default=-1) < len(samples.threads)
        and max(samples.line, default=-1) < len(samples.lines)
        and all(line.caller <= number for number, line in enumerate(samples.lines))
    )


def _clear(row: Any, causes: Counter[str], **ends: int) -> None:
    """Clear fields that hold no time. Protobuf knows no base class with `ClearField`."""
    for field, end in ends.items():
        if not 0 <= getattr(row, field) < end:
            row.ClearField(field)
            causes[f"{type(row).__name__}.{field}: no time"] += 1
