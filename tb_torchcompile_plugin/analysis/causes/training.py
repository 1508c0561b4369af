"""What could a step of training do without, in autograd and in the optimizer?

Autograd: micro-batches, checks, repeated backwards, recomputed forwards, zeroed gradients. The optimizer: many
launches.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.cause import PricedCause, Words, step_after
from tb_torchcompile_plugin.analysis.causes.context import SpanContext
from tb_torchcompile_plugin.analysis.causes.eager_points import optimizer_steps, optimizer_times
from tb_torchcompile_plugin.analysis.causes.host import excess
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding
from tb_torchcompile_plugin.analysis.runtime.kernel_code import share_of_gpu
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.analysis.runtime.recomputed import recomputed
from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import called_by, host_slices, mask_at
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.attribution import culprits, most_called_at
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.collectives import PAIRED, is_group_call, operation_of
from tb_torchcompile_plugin.torch_names.slices import LABEL, PYTHON_FUNCTION, is_zero_grad

# Chosen by eye on the external programs of docs/what_if.md.
_BATCHED = 4  # micro-batches of a step, from which on a larger batch is worth a word
_ALIKE = 0.1  # micro-batches may differ by this share of their launches
_MIN_CHECKS = 8  # for NaNs in one step: a program may look for a NaN itself, once

_FUSED_NS = 150_000  # host time of an optimizer step in a few launches; see docs/what_if.md
_MANY_LAUNCHES = 20  # of one optimizer step: with fewer there is little to gain
# AdamW's 8 kernels read and write each tensor 21 times, its fused kernel 7 times.
_FUSED_PASSES = 1 / 3


class AnomalyMode(PricedCause):
    """Autograd looks for a NaN after each node, 8 times per step or more.

    As `torch.autograd.set_detect_anomaly` asks for. It changes the whole program. It keeps a stack of each forward
    operator, too: where stacks were not recorded, up to all time of the host in forward operators and in between.
    """

    id = "anomaly_mode"
    panel = "operators"
    role = "blocking"
    varies = True
    words = Words(
        "Anomaly mode is on: autograd looks for a NaN {often} {each} and keeps the stack of each node",
        "Switch it off where no error is looked for: `torch.autograd.set_detect_anomaly(False)`",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, steps = profile.trace, profile.of(launch_sequence).steps
        checks = host_slices(trace, operators.NAN_CHECKS.__contains__)
        checks = checks[called_by(trace, checks, operators.is_node)]
        names = [trace.names[name] for name in trace.name[checks]]
        compares, reads = names.count(operators.NAN_CHECKS[0]), names.count(operators.NAN_CHECKS[-1])
        if min(compares, reads) < _MIN_CHECKS * steps:
            return
        stacks = host_slices(trace, operators.is_anomaly_stack, (PYTHON_FUNCTION,))
        seen = fix.without_work(profile, fix.slice_times(profile, np.union1d(checks, stacks)))
        likely, most = (fix.in_sequence(seen, fix.without_host_time(ns)) for ns in _around_forwards(profile))
        yield fix.Fix(
            subject=(operators.NAN_CHECKS[0], "", 0),
            change=seen if len(stacks) else likely,
            times=compares / steps,
            conservative=seen,
            optimistic=None if len(stacks) else most,
        )


class RepeatedBackward(PricedCause):
    """Autograd goes back through one compiled graph several times for each time that it ran forward."""

    id = "repeated_backward"
    panel = "compilations"
    section = "regions"
    words = Words(
        "Autograd goes back through the same compiled graph {often} more than it ran forward",
        "Add the losses up and call backward once: `sum(losses).backward()`, without retain_graph",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, ownership = profile.trace, profile.of(Ownership)
        forwards: Counter[str] = Counter()
        for call in all_calls(profile.of(region_calls)):
            # Each graph that DDP made of a frame has a backward.
            forwards[call.compile_id] += max(len(call.graphs), 1)
        repeated: list[int] = []
        for code, pairs in grouped(ownership.backwards, lambda pair: pair[1]).items():
            rows = sorted((row for row, _ in pairs), key=trace.ts.__getitem__)
            forward = forwards[ownership.names[code]]
            times, rest = divmod(len(rows), forward) if forward else (0, 0)
            if times > 1 and not rest:
                repeated += (row for index, row in enumerate(rows) if index % times)
        if repeated:
            unneeded = fix.slice_times(profile, np.array(sorted(repeated), np.int64))
            number = len(repeated) / profile.of(launch_sequence).steps
            yield fix.Fix(number, fix.without_work(profile, unneeded))


class RecomputedForward(PricedCause):
    """Checkpoints compute in the backward what the forward had computed.

    Eager ones are seen by their function in a stack, their node, or operators of a forward inside of a node;
    [inside of compiled graphs](#checkpoints-inside-of-compiled-graphs) by products, convolutions and attention of the
    forward in its compiled backward. Not advised (info) where most of the memory is in use.
    """

    id = "recomputed"
    panel = "step"
    limits = ("memory_percent",)
    words = Words(
        "Checkpoints compute the forward once more in the backward, {often} {each}{place}",
        "Keep it where memory allows: no checkpoint around the layers (`model.gradient_checkpointing_disable()` in "
        "transformers), or around a few of them only",
        "where memory allows, without them",
    )

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        """Do not advise it where a step needs its checkpoints: they save memory."""
        devices = context.profile.of(held_memory)
        fullest = max(devices, key=lambda device: device.share_percent or 0, default=None)
        for row in self.large(context):
            words = self.filled(row, context.time_unit)
            if fullest is None:
                yield self.advise(context, row)
            elif (fullest.share_percent or 0) < thresholds.memory_percent:
                yield self.advise(context, row, next_step=f"{words.next_step}. {fullest.sentence()}")
            else:
                predicted = step_after(row.predicted, words.fixed, context.time_unit)
                title = f"{words.title}: {predicted}, but {fullest.sentence()}"
                evidence: Evidence = {"times_per_step": row.times}
                yield self.finding(title, words.next_step, evidence, severity="info", advised=False)

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        eager, compiled, data = profile.of(recomputing), list(recomputed(profile)), profile.data
        moments = [[*eager, *(part.likely for part in compiled)]]
        if compiled:  # cheap kernels between a heavy operator and one of the gradient may belong to either
            moments.append([*eager, *(moment for part in compiled for moment in part.heavy)])
            moments.append([*eager, *(part.widest for part in compiled)])
        times = [fix.on_tracks(profile, *np.array(rows, np.int64).reshape(-1, 3).T) for rows in moments]
        inside, first = fix.points_inside(profile, times[0])
        if not inside.any():
            return
        # Where the first checkpoint of the compiled graphs is called.
        lines = (data.of(checkpoint_lines, part.compile_id) for part in compiled) if data else ()
        frame = next(chain.from_iterable(lines), None)
        yield fix.Fix(
            int(first.sum()) / profile.of(launch_sequence).steps,
            *(fix.without_work(profile, when) for when in times),
            subject=("torch.utils.checkpoint", frame.file if frame else "", frame.line if frame else 0),
        )


class ZeroedGradients(PricedCause):
    """`zero_grad(set_to_none=False)` launches kernels, and gradients are added to what is there.

    From 10 % of a step on it comes before whatever makes any program faster: torch refuses to use CUDA graphs with
    gradients that are kept.
    """

    id = "zeroed_gradients"
    panel = "operators"
    role = "blocking"
    blocking_percent = 10.0  # chosen by eye, as below
    words = Words(
        "Gradients are set to zero in {times} kernel{s} {each}, and then added to",
        "Give them back: `optimizer.zero_grad(set_to_none=True)`, which is the default. Gradients that stay keep CUDA "
        "graphs from being used, too: torch refuses to write over what an earlier run gave",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane = profile.trace, profile.of(launch_sequence)
        zeroing = fix.slice_times(profile, host_slices(trace, is_zero_grad, (LABEL,)))
        launches = int((fix.points_inside(profile, zeroing)[0] & lane.launches).sum())
        if not launches:
            return
        additions = host_slices(trace, operators.ADDITION.__eq__)
        additions = additions[fix.enclosing(trace, additions, operators.ACCUMULATES.__eq__) >= 0]
        zeroed = fix.without_work(profile, zeroing)
        added = fix.without_work(profile, fix.slice_times(profile, additions))
        yield fix.Fix(
            subject=("zero_grad", "", 0),
            # All micro-batches but the first have to add to the gradients.
            change=zeroed if profile.of(micro_batches) else fix.in_sequence(zeroed, added),
            times=launches / lane.steps,
            conservative=zeroed,
        )


class Batch(PricedCause):
    """4 micro-batches or more of a forward and a backward, all alike, for each step of the optimizer.

    As one batch they launch once, and kernels that do not fill the GPU take no longer.
    """

    id = "batch"
    panel = "step"
    section = "ledger"
    role = "generic"
    words = Words(
        "A step goes forward and backward {often} for one step of the optimizer{place}",
        "Make one batch of them, or fewer and larger ones, as far as memory allows",
        "as one batch",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        if not profile.of(micro_batches):
            return
        steps, lane, queue = profile.of(micro_batches), profile.of(launch_sequence), profile.of(gpu_queue)
        count = len(steps[0]) - 1
        calls = host_slices(profile.trace, lambda name: is_group_call(name) and operation_of(name) in PAIRED)
        if count < _BATCHED or len(calls):
            return  # a stage of a pipeline needs several micro-batches, which keep the other stages busy
        first, others = np.zeros((2, len(lane)), bool)
        for edges in steps:
            first[edges[0] : edges[1]] = True
            others[edges[1] : edges[-1]] = True
        computing = profile.of(fix.are_kernels) & ~profile.of(fix.communicating)
        work = np.flatnonzero(first[queue.point] & computing)
        pieces, dropped = profile.of(host_segments), np.flatnonzero(others[queue.point])
        gone = fix.in_sequence(
            fix.without_host_time(np.where(others[pieces.point], pieces.ns, 0)),
            fix.without_waiting(others),
            fix.with_call_time(others, 0),
            fix.fused(dropped, 0),
        )
        longer = (
            (queue.dur[work] * np.maximum(1.0, count * filled)).astype(np.int64)
            for filled in (share_of_gpu(profile.trace, queue.row[work]), 1.0, 0.0)
        )
        yield fix.Fix(
            count,
            *(fix.in_sequence(gone, fix.with_durations(work, ns)) for ns in longer),
            subject=("", *most_called_at(profile, lane.row[first & (lane.row >= 0)])),
        )


class ReducedOnce(PricedCause):
    """Gradients are reduced over the ranks (DDP, FSDP2) in each micro-batch, not in the last one alone."""

    id = "reduced_once"
    panel = "step"
    section = "idle"
    role = "blocking"
    blocking_percent = 10.0
    words = Words(
        "Gradients are reduced over the ranks {often} {each} ({name}), once for each backward",
        "Reduce them in the last one: `with ddp.no_sync():` for all micro-batches before, or "
        "fsdp_module.set_requires_gradient_sync(False), which keeps whole gradients on each rank meanwhile",
        "reduced once",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        if not profile.of(micro_batches):
            return
        steps, lane, queue = profile.of(micro_batches), profile.of(launch_sequence), profile.of(gpu_queue)
        early = np.zeros(len(lane), bool)
        for edges in steps:
            early[edges[0] : edges[-2]] = True
        work = np.flatnonzero(early[queue.point] & profile.of(fix.communicating))
        rows = lane.row[queue.point[work]].astype(np.int64)
        call = fix.enclosing(profile.trace, rows, is_group_call)
        reducing = (fix.enclosing(profile.trace, rows, operators.reduces_gradients) >= 0) & (call >= 0)
        work, call = work[reducing], np.unique(call[reducing])
        if len(work):
            name, times = profile.trace.names[profile.trace.name[call[0]]], fix.slice_times(profile, call)
            change = fix.in_sequence(
                fix.without_host_time(fix.time_inside(profile, times)),
                fix.with_call_time(fix.points_inside(profile, times)[0] & early, 0),
                fix.with_durations(work, 0),
            )
            yield fix.Fix(len(steps[0]) - 1, change, subject=(name, "", 0))


class FusedOptimizer(PricedCause):
    """An optimizer that launches 20 kernels or more each time it steps, and is not fused."""

    id = "fused_optimizer"
    panel = "operators"
    words = Words(
        "The optimizer launches {times} kernel{s} {each}",
        "Let it launch a few: `torch.optim.AdamW(..., fused=True)`, or torch.compile(optimizer.step)",
        "fused,",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
        inside, first = fix.points_inside(profile, profile.of(optimizer_times))
        launches = int((inside & lane.launches).sum())
        if not launches or launches < _MANY_LAUNCHES * max(int(first.sum()), 1):
            return
        is_fused = fix.work_named(profile, operators.is_fused_optimizer) & inside[queue.point]
        if 2 * int(is_fused.sum()) > int(inside[queue.point].sum()):
            return
        # Each step is one launch: each kernel takes as long as the shortest one, and then for its data.
        once = fix.as_one_call(profile, profile.of(optimizer_times), _FUSED_NS)
        work = np.flatnonzero(inside[queue.point] & ~first[queue.point])
        data_ns = queue.dur[work] - queue.dur[work].min(initial=np.iinfo(np.int64).max)
        changes = (
            fix.in_sequence(once, fix.fused(work, (data_ns * passes).astype(np.int64)))
            for passes in (_FUSED_PASSES, 1.0)
        )
        name = trace.names[trace.name[optimizer_steps(trace)[0]]]
        yield fix.Fix(launches / lane.steps, *changes, subject=(name, "", 0))


def micro_batches(profile: Profile) -> list[Int64s]:
    """Return for each step the points at which its micro-batches begin, and where the last one ends.

    A micro-batch is a forward and a backward. [] where steps have only one, where an optimizer works between two, or
    where they do not launch as much. The first one may launch less, as it adds to no gradients: it begins no earlier
    than if it launched as much as the second.
    """
    lane = profile.of(launch_sequence)
    launches = np.flatnonzero(lane.launches & (lane.row >= 0))
    backward = np.zeros(len(lane), bool)
    backward[launches] = profile.of(Ownership).is_backward(lane.row[launches].astype(np.int64))
    optimizing, _ = fix.points_inside(profile, profile.of(optimizer_times))
    steps = [_edges(lane.launches, backward, begin, end) for begin, end in pairwise(lane.marks.tolist())]
    if not steps or len({len(edges) for edges in steps}) > 1 or len(steps[0]) < 3:  # edges: two micro-batches
        return []
    return [] if any(optimizing[edges[0] : edges[-1]].any() for edges in steps) else steps


def _edges(launches: fix.Bools, backward: fix.Bools, begin: int, end: int) -> Int64s:
    """Return the edges of the micro-batches of one step; an empty array where they are not alike."""
    points = begin + np.flatnonzero(launches[begin:end])
    ends = np.flatnonzero(backward[points] & ~np.append(backward[points][1:], False)) + 1
    if len(ends) < 2:
        return np.zeros(0, np.int64)
    counts = np.diff(ends)
    if np.ptp(counts) > _ALIKE * counts.max() or 2 * ends[0] < counts[0]:
        return np.zeros(0, np.int64)
    return np.concatenate((points[[max(ends[0] - counts[0], 0)]], points[ends - 1] + 1))


def recomputing(profile: Profile) -> list[tuple[int, int, int]]:
    """Return (slice of the thread, begin, end) of each forward that a checkpoint computed again.

    The function that does it, where stacks were recorded. Otherwise what a checkpoint's own node does before the
    backward inside it, and operators of a forward with which a node begins.
    """
    trace = profile.trace
    functions = host_slices(trace, operators.is_checkpoint_recompute, (PYTHON_FUNCTION,))
    if len(functions):
        begins, dur = trace.ts[functions], trace.dur[functions]
        return list(zip(functions.tolist(), begins.tolist(), (begins + dur).tolist()))
    nodes = host_slices(trace, operators.is_node)
    ends: dict[int, int] = {}
    for row in host_slices(trace, operators.CHECKPOINT_BACKWARD.__eq__).tolist():
        begin, end = int(trace.ts[row]), int(trace.ts[row] + trace.dur[row])
        begins = trace.ts[nodes[trace.track[nodes] == trace.track[row]]]
        ends[row] = int(begins[(begins > begin) & (begins < end)].min(initial=end))
    rows = host_slices(trace, operators.is_forward_only)
    # Operators that a user's own backward calls were not recorded for autograd, and have no sequence number.
    rows = rows[trace.sequence[rows] >= 0]
    nodes = fix.enclosing(trace, rows, operators.is_plain_node)
    for node, row in zip(nodes[nodes >= 0].tolist(), rows[nodes >= 0].tolist()):
        ends[node] = max(ends.get(node, 0), int(trace.ts[row] + trace.dur[row]))
    return [(row, int(trace.ts[row]), end) for row, end in ends.items()]


def _around_forwards(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return how much of each host segment may be anomaly mode's stacks: beyond the usual of a call, and at most.

    torch keeps them where it makes a node of its graph: in forward operators and around compiled graphs.
    """
    trace, pieces, blamed = profile.trace, profile.of(host_segments), profile.of(culprits)
    cause = np.array([culprit.cause for culprit in blamed.culprits])[blamed.code]
    is_forward = (trace.sequence[pieces.row] >= 0) & (trace.forward_thread[pieces.row] <= 0)
    likely = np.flatnonzero(((pieces.row >= 0) & is_forward) | (cause == "wrappers"))
    ns = np.zeros(len(pieces.row), np.int64)
    ns[likely], _ = excess(pieces.take(likely), thresholds.USUAL_CALL_NS)
    return ns, np.where(mask_at(likely, len(ns)) | (cause == "nothing"), pieces.ns, 0)
