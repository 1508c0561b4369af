"""What is launched kernel by kernel but could be launched at once, and why are CUDA graphs not used?"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix, host, training, what_if
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause, SpanContext, Words, step_after
from tb_torchcompile_plugin.analysis.causes.eager_points import outside
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import (
    cudagraph_skips,
    skipped_graphs,
    skips_of_graphs,
)
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import at_line, count_per_step, often, plural
from tb_torchcompile_plugin.analysis.runtime import cuda_graphs
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, joined, within
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.gpu.captures import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.host.eager_roots import repetition
from tb_torchcompile_plugin.profile.model.attribution import most_called_at
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import caches, operators, slices

DYNAMIC_CUDA_GRAPHS = "cuda_graphs:changing sizes"  # the id of this fix
_MANY_CALLS = 4  # of one graph per step, from which a larger batch is advised; chosen on the recordings
_CELLS = 8  # in a row: shorter loops cost little; chosen on the recordings
_NEAR_NS = 2_000_000  # between two cells of a loop, while profiled; chosen on the recordings
# As in docs/concepts/predictions.md, with their bounds.
_REPLAY_NS = 60_000  # host time of one CUDA graph: copying its inputs and launching it
_SEQUENCE_NS = 250_000  # host time of the launches of a whole sequence, one way
# Remedies for reasons to skip CUDA graphs, by a word of torch's text.
_AGAINST_SKIPS = {
    "dynamic_shape_rerecord_limit": f"Pad inputs to fewer sizes, or record each size: `{caches.SHAPE_LIMIT} = None`",
    "managed input re-recording": "Pass the same tensors in each step, or let torch copy them: "
    f'`{caches.MOVED_INPUT_ACTION} = "copy"`',
    "mutated": "Do not write to inputs in place: clone them, or make them parameters or buffers of the module",
    "cpu": "Keep all inputs, outputs and operators of the graph on the GPU",
    "dynamic": "Give the graph static shapes: pad inputs, or use torch.compile(..., dynamic=False)",
    "symbolic": "Give the graph static shapes: pad inputs, or use torch.compile(..., dynamic=False)",
    "incompatible": "Replace the operator that torch names, or compile it separately",
}
_OF_CHANGING_SIZES = Words(
    "The GPU waits for kernel launches: {graphs} {each} {are} launched kernel by kernel, with changing sizes",
    'Pad or bucket the sizes first, then use `torch.compile(model, mode="reduce-overhead", dynamic=False)`',
    "With CUDA graphs",
)


class LaunchBound(PricedCause):
    """Compiled graphs are launched kernel by kernel instead of at once.

    A larger batch is advised first if one graph is called at least 4 times per step. Not reported if CUDA graphs are
    used or requested. Graphs with changing sizes are excluded, or reported with this reason (info) if only they gain.
    """

    id = "launch_bound"
    kind = "cuda_graphs"
    panel = "step"
    section = "idle"
    role = "generic"
    words = Words(
        "The GPU waits for kernel launches: {graphs} {each} {are} launched kernel by kernel",
        'Use CUDA graphs: `torch.compile(model, mode="reduce-overhead")`',
        "With CUDA graphs",
    )

    def words_of(self, row: what_if.WhatIf) -> Words:
        return _OF_CHANGING_SIZES if row.id == DYNAMIC_CUDA_GRAPHS else self.words

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        data = context.profile.data
        is_skipped = data and (data.of(cudagraph_skips) or data.of(skipped_graphs))
        is_asked_for = is_skipped or context.profile.of(cuda_graphs.requested_graphs)
        large = [] if is_asked_for else self.large(context)
        advised = [row for row in large if row.id != DYNAMIC_CUDA_GRAPHS]
        for row in advised:
            yield self.advise(context, row, next_step=_cuda_graph_advice(context, self.filled(row).next_step))
        if large and not advised:
            symbols = sorted({*chain(*context.profile.of(fix.changing_graphs).values())})
            title = (
                f"CUDA graphs would avoid kernel launches, but sizes change ({', '.join(symbols)}), so each size would "
                "need its own recording"
            )
            advice = self.filled(large[0]).next_step
            yield self.finding(title, advice, {"symbols": len(symbols)}, severity="info", advised=False)

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        """Yield every compiled graph launched at once; graphs with changing sizes are a separate fix.

        Those need one recording for each size.
        """
        if profile.of(cuda_graphs.requested_graphs) or profile.of(launch_calls).replay.any():
            return
        for fix_id, is_changing in (("cuda_graphs", False), (DYNAMIC_CUDA_GRAPHS, True)):
            yield from _launched_as_one(profile, fix_id, profile.of(fix.graph_times, is_changing))


class GraphCapture(host.HostTimeCause):
    """CUDA graphs are on, but calls of a compiled graph are not replayed.

    They are recorded again (new sizes, moved parameters or inputs, results that are still in use) or run kernel by
    kernel. The title names the function and the reason; the prediction assumes that all calls are replayed. First
    recordings are not reported.
    """

    id = "graph_capture"
    panel = "compilations"
    section = "cuda_graphs"
    words = Words(
        "CUDA graphs are recorded or skipped instead of replayed, {often} {each}{place}",
        "Use the same shapes and the same input buffers in each step: pad inputs, or copy them into static buffers. "
        "The CUDA graphs section of the Compilations panel shows what changed",
        "If they were replayed",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        yield from super().fixes(profile)
        if profile.of(cuda_graphs.requested_graphs):
            is_used = profile.of(launch_calls).replay.any()
            times = profile.of(not_replayed) if is_used else profile.of(fix.graph_times)
            yield from _launched_as_one(profile, "cuda_graphs", times)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        by, report = next(iter(self.large(context)), None), context.profile.of(cuda_graphs.cuda_graphs)
        if by is None:
            return
        if not report.functions:  # captured by the program itself
            yield self.advise(context, by)
        functions = [row for row in report.functions if row.state in cuda_graphs.NOT_REPLAYED]
        if not functions:
            return
        row = min(functions, key=lambda row: row.replayed_calls - row.calls)
        advice, code = cuda_graphs.remedy(row, report.recordings)
        lines = [
            at_line(recording.file, recording.line)
            for recording in report.recordings
            if recording.compile_id == row.compile_id and recording.file
        ]
        yield self.finding(
            f"{cuda_graphs.complaint(row)}. {step_after(by.predicted, 'If it were replayed', context.time_unit)}",
            advice,
            {
                "gain_us_per_step": by.predicted.gain_us,
                "share_percent": by.predicted.gain_percent,
                "times_per_step": by.times,
                "calls": row.calls,
                "calls_that_recorded": row.recorded_calls,
                "calls_kernel_by_kernel": row.plain_calls,
            },
            by=by,
            where=list(dict.fromkeys([*lines, at_line(row.file, row.line)]))[: thresholds.MAX_LINES],
            code=code,
        )


class CudaGraphsSkipped(Cause):
    """Inductor was configured to use CUDA graphs but skipped them (warning); with the line that torch names."""

    id = "cudagraphs_skipped"
    panel = "compilations"
    section = "cuda_graphs"

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        data = context.profile.data
        return self.detect_in_data(data, context) if data else iter(())

    def detect_in_data(self, data: CompileData, context: SpanContext | None = None) -> Iterator[Finding]:
        """Yield each reason for skipping CUDA graphs; with a span, the first has a predicted gain."""
        by = context.best("graph_capture") if context else None
        reasons = grouped(data.of(skips_of_graphs), lambda skip: skip[1].reason)
        for index, (reason, skips) in enumerate(reasons.items()):
            ids = [key for key in dict.fromkeys(key for key, _ in skips) if key[1]]
            advice = (text for word, text in _AGAINST_SKIPS.items() if word in reason.lower())
            lines = (at_line(row.file, row.line) for row in data.of(skipped_graphs) if row.reason == reason)
            compilations = f" for {plural(len(ids), 'compilation')}" if ids else ""
            yield self.finding(
                f"CUDA graphs are skipped{compilations}: {reason}",
                next(advice, "Remove the cause that torch names"),
                {"compilations": len(ids)} if ids else {},
                severity=None if by and index == 0 else "warning",
                row=f"compilation:{ids[0][1]},{ids[0][0]},forward" if ids else None,
                by=by if index == 0 else None,
                where=list(dict.fromkeys(lines)),
            )
        unexplained = data.of(cudagraph_skips) or 0
        if unexplained and not reasons:
            yield self.finding(
                f"CUDA graphs were skipped {often(unexplained)}. The reason is only in torch’s log",
                "Run with `TORCH_LOGS=cudagraphs` to see the reason, such as mutated inputs or CPU tensors",
                {"skips": unexplained},
                severity="warning",
                by=by or (context.best("cuda_graphs") if context else None),
            )


class CudaGraphsUsed(Cause):
    """CUDA graphs are replayed, but some kernels are launched outside them (info)."""

    id = "cuda_graphs_used"
    panel = "compilations"
    section = "cuda_graphs"

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        profile, calls = context.profile, context.profile.of(launch_calls)
        if not profile.of(graph_runs).replayed.any() and profile.of(cuda_graphs.requested_graphs):
            return  # each was launched only when it was recorded: another cause reports why
        counts = [calls.between(begin, end) for begin, end in zip(*context.windows)]
        replays, launches = sum(row.replays for row in counts), sum(row.launches for row in counts)
        if not replays or launches == replays:
            return
        steps = context.step_count
        times, each = count_per_step(replays / steps, context.time_unit.each)
        outside, of = count_per_step((launches - replays) / steps, context.time_unit.each)
        yield self.finding(
            f"CUDA graphs are replayed {'once' if times == '1' else f'{times} times'} {each}, but "
            f"{outside} {'launch' if outside == '1' else 'launches'} {of} {'is' if outside == '1' else 'are'} still "
            "outside them",
            "These launches are from eager code, or torch skipped CUDA graphs for their code. Compile eager code, too",
            {
                "replays_per_step": replays / steps,
                "launches_per_step": (launches - replays) / steps,
                "launch_call_us_per_step": sum(row.time_ns for row in counts) / 1000 / steps,
            },
            severity="info",
        )


class RecurrentCells(PricedCause):
    """8 or more cells of a recurrent network in a row are launched one by one.

    For example `nn.LSTMCell`, `GRUCell` or `RNNCell` in a loop.
    """

    id = "recurrent_cells"
    panel = "operators"
    words = Words(
        "A recurrent network is called cell by cell, {often} {each}{place}",
        "If no input depends on the previous output, pass the whole sequence at once: `torch.nn.LSTM`, GRU or RNN "
        "instead of a loop over cells. Apply layers that read each state to all states at once",
        "With the whole sequence at once",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane = profile.trace, profile.of(launch_sequence)
        cells = columns.host_slices(trace, operators.is_cell)
        loops = [loop for _, rows in columns.by_track(trace, cells) for loop in _loops_of(profile, rows)]
        if not loops:
            return
        first, last = (np.array([loop[end] for loop in loops], np.int64) for end in (0, -1))
        times = fix.on_tracks(profile, first, trace.ts[first], trace.ts[last] + trace.dur[last])
        changes = (fix.as_one_call(profile, times, ns) for ns in (_SEQUENCE_NS, 4 * _SEQUENCE_NS))
        is_aten = columns.mask_of(trace.names, lambda name: name.startswith(operators.ATEN))[trace.name]
        forward = np.array([row for loop in loops for row in loop if is_aten[row]], np.int64)
        # Of very many steps, the model contains only the first.
        count = int(fix.points_inside(profile, fix.slice_times(profile, forward))[1].sum())
        yield fix.Fix(count / lane.steps, *changes, subject=("", *most_called_at(profile, forward)))


class RepeatedOperators(PricedCause):
    """A loop launches the same eager operators in 8 or more iterations, for example over the samples of a batch.

    Not reported if iterations contain matrix products, convolutions, attention, normalization, communication or
    compiled code (loops over layers, generation), or in backwards and optimizers. The prediction keeps all GPU work.
    """

    id = "repeated_operators"
    panel = "operators"
    superseded_by = ("eager_remainder", "synchronise", "python")
    varies = True  # no trace shows whether iterations are independent
    words = Words(
        "A loop launches {name} {often} {each}{place}",
        "If iterations are independent, replace the loop with one call on a batched tensor (padded if sizes differ): "
        "operators that accept a batch, torch.vmap, torchvision.transforms.v2 or torch._foreach_*. Otherwise compile "
        "the function around the loop",
        "With one batched call",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        """Yield the loops that launch most operators, without their iterations between the first and the last."""
        calls, part = profile.of(_batchable_operators)
        trace, lane = profile.trace, profile.of(launch_sequence)
        loops = repetition(trace.name[calls], part) if len(calls) else None
        if loops is None:
            return
        begin = calls[loops.second]
        times = fix.on_tracks(profile, begin, trace.ts[begin], trace.ts[calls[loops.last]])
        inside = calls[columns.ranges(loops.first, loops.last - loops.first)[1]]
        iteration = trace.name[calls[loops.first[0] : loops.second[0]]]
        names = list(dict.fromkeys(trace.names[name] for name in iteration.tolist()))
        what = f"{len(iteration)} operators ({', '.join(names[:2])}{' …' if names[2:] else ''})"
        changes = fix.without_host_work(profile, times), fix.in_sequence()
        subject = what, *most_called_at(profile, inside)
        yield fix.Fix(int(loops.iterations.sum()) / lane.steps, *changes, subject=subject)


def _cuda_graph_advice(context: SpanContext, advice: str) -> str:
    """Add a larger batch instead of many calls, graphs that cannot use CUDA graphs, and gradients that prevent them."""
    counts = Counter(call.compile_id for call in all_calls(context.profile.of(region_calls)))
    times = max(counts.values(), default=0) / context.step_count
    if times >= _MANY_CALLS:
        advice = (
            f"The same graph is called {times:.0f} times {context.time_unit.each}: if calls are independent, combine "
            f"them into one batch. Otherwise, {advice[0].lower()}{advice[1:]}"
        )
    if changing := context.profile.of(fix.changing_graphs):
        names = list(changing)
        named = ", ".join(names[: thresholds.MAX_NAMES])
        more = f" and {len(names) - thresholds.MAX_NAMES} more" if len(names) > thresholds.MAX_NAMES else ""
        symbols = sorted({*chain(*changing.values())})
        advice += (
            f". The sizes of {named}{more} change ({', '.join(symbols)}), so set "
            "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True; otherwise each size is recorded. "
            f"The prediction excludes {'it' if len(names) == 1 else 'them'}"
        )
    if context.best(training.ZeroedGradients.kind):  # torch raises an error in the second step
        advice += (
            ". First use optimizer.zero_grad(set_to_none=True): gradients that are kept are outputs of an earlier "
            "CUDA graph run, which torch refuses to overwrite"
        )
    return advice


def _launched_as_one(profile: Profile, fix_id: str, times: fix.Times) -> Iterator[fix.Fix]:
    """Yield the fix that launches each graph of these times at once; host work outside them stays."""
    lane, replayed = profile.of(launch_sequence), bool(profile.of(launch_calls).replay.any())
    inside, first = fix.points_inside(profile, times)
    if not inside.any():
        return
    busy = inside & ~lane.launches & replayed  # recording again, and waiting for the GPU
    at_once = fix.in_sequence(fix.without_waiting(busy & lane.synchronises), fix.with_call_time(busy, 0))
    changes = (
        fix.in_sequence(at_once, fix.as_one_call(profile, times, replay_ns))
        for replay_ns in (_REPLAY_NS, 3 * _REPLAY_NS, _REPLAY_NS // 3)
    )
    yield fix.Fix(int(first.sum()) / lane.steps, *changes, id=fix_id)


def not_replayed(profile: Profile) -> fix.Times:
    """Return when each thread recorded graphs, or ran them kernel by kernel, instead of replaying them."""
    runs, names = profile.of(graph_runs), profile.of(Ownership).names
    requested = set(profile.of(cuda_graphs.requested_graphs))
    owners = zip(runs.compile_id.tolist(), runs.backward.tolist())
    selected = [
        code >= 0 and (names[code], "backward" if backward else "forward") in requested
        for code, backward in owners
    ]
    times = fix.slice_times(profile, runs.row[np.array(selected, bool) & ~runs.replayed])
    # Widen each to the enclosing graph: torch continues after a recording, with its metrics.
    for track, whole in profile.of(fix.graph_times).items():
        if track in times:
            inner = times[track]
            around = np.unique(within(whole, inner.starts))
            around = around[around >= 0]
            times[track] = joined(inner, Intervals(whole.starts[around], whole.ends[around]))
    return times


def _loops_of(profile: Profile, rows: Int64s) -> list[Int64s]:
    """Split the cells of one thread into loops with little other work in between."""
    trace = profile.trace
    rows = rows[np.argsort(trace.ts[rows], kind="stable")]
    gap = trace.ts[rows][1:] - (trace.ts[rows] + trace.dur[rows])[:-1]
    other_step = np.diff(np.searchsorted(profile.of(StepWindows).starts, trace.ts[rows], "right")) > 0
    loops = np.split(rows, np.flatnonzero((gap > _NEAR_NS) | other_step) + 1)
    return [loop for loop in loops if len(loop) >= _CELLS]


def _batchable_operators(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return the outermost operators that launch and could be batched, with a number for each uninterrupted sequence.

    Other launches in between, or another step, interrupt a sequence.
    """
    trace, lane = profile.trace, profile.of(launch_sequence)
    points = np.flatnonzero(lane.launches & (lane.row >= 0))
    rows = lane.row[points].astype(np.int64)
    calls = fix.outermost_operator(trace, rows)
    selected = (calls >= 0) & profile.of(outside)[points] & (fix.enclosing(trace, rows, _is_of_layers) < 0)
    part = np.cumsum(~selected) + np.searchsorted(lane.marks, points, side="right")
    calls, first = np.unique(calls[selected], return_index=True)
    return calls, part[selected][first]


def _is_of_layers(name: str) -> bool:
    """Whether it computes a layer with parameters or gradients, or sets these to zero."""
    is_forward = operators.landmark_of(name) or operators.is_forward_only(name) or operators.is_cell(name)
    return bool(is_forward) or operators.is_backward(name) or slices.is_zero_grad(name)
