"""Which work of autograd and of the optimizer could a training step avoid?"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.cause import PricedCause, SpanContext, Words, step_after
from tb_torchcompile_plugin.analysis.causes.eager_points import optimizer_steps, optimizer_times
from tb_torchcompile_plugin.analysis.causes.host import excess
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import share_of_gpu
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import Int64s, called_by, codes_of, host_slices, mask_at, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.model.attribution import culprits, most_called_at
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.nest import outermost_ancestor
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.collectives import PAIRED, is_group_call, operation_of
from tb_torchcompile_plugin.torch_names.slices import LABEL, PYTHON_FUNCTION, is_zero_grad

# Chosen on the external programs of docs/benchmarks.md.
_BATCHED = 4  # micro-batches per step, from which a larger batch is advised
_ALIKE = 0.1  # micro-batches may differ by this share of their launches
_MIN_CHECKS = 8  # for NaN per step: a program may contain a few checks itself

_FUSED_NS = 150_000  # host time of an optimizer step in a few launches; see docs/concepts/predictions.md
_MANY_LAUNCHES = 20  # of one optimizer step: with fewer, there is little to gain
# AdamW's 8 kernels read and write each tensor 21 times, its fused kernel 7 times.
_FUSED_PASSES = 1 / 3


class AnomalyMode(PricedCause):
    """Autograd checks for NaN after each node, at least 8 times per step.

    `torch.autograd.set_detect_anomaly` changes the whole program: it also stores a stack for each forward operator. If
    stacks were not recorded, these may take up to all host time in and between forward operators.
    """

    id = "anomaly_mode"
    panel = "operators"
    role = "blocking"
    varies = True
    words = Words(
        "Anomaly mode is on: autograd checks for NaN {often} {each} and stores a stack for each node",
        "Turn anomaly mode off when you do not debug: `torch.autograd.set_detect_anomaly(False)`",
        "Without these checks",
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
        changes = (seen,) if len(stacks) else (likely, seen, most)
        yield fix.Fix(compares / steps, *changes, subject=(operators.NAN_CHECKS[0], "", 0))


class RepeatedBackward(PricedCause):
    """Autograd runs the backward of a compiled graph several times for each forward."""

    id = "repeated_backward"
    panel = "compilations"
    section = "regions"
    words = Words(
        "The backward of a compiled graph runs {often} {each} without a new forward",
        "Sum the losses and call backward once: `sum(losses).backward()`, without retain_graph",
        "With one backward",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, ownership = profile.trace, profile.of(Ownership)
        forwards: Counter[str] = Counter()
        for call in all_calls(profile.of(region_calls)):
            # DDP splits a frame into graphs; each has a backward.
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
    """Checkpoints recompute the forward in the backward.

    Eager checkpoints are detected by their function in a stack, their node, or forward operators inside a node;
    [in compiled graphs](#checkpoints-inside-compiled-graphs) by products, convolutions and attention of the forward in
    the compiled backward. Not advised (info) if most of the memory is in use.
    """

    id = "recomputed"
    panel = "step"
    limits = ("memory_percent",)
    words = Words(
        "Checkpoints recompute the forward in the backward, {often} {each}{place}",
        "If memory allows, keep activations: no checkpoints around layers "
        "(`model.gradient_checkpointing_disable()` in transformers), or only around a few of them",
        "Without checkpoints",
    )

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        """Do not advise it if the step needs its checkpoints to save memory."""
        fullest = max(context.profile.of(held_memory), key=lambda row: row.share_percent or 0, default=None)
        for row in self.large(context):
            words = self.filled(row, context.time_unit)
            if fullest is None or (fullest.share_percent or 0) < thresholds.memory_percent:
                next_step = f"{words.next_step}. {fullest.sentence()}" if fullest else ""
                yield self.advise(context, row, next_step=next_step)
            else:
                predicted = step_after(row.predicted, words.fixed, context.time_unit)
                title = f"{words.title}. {predicted}, but {fullest.sentence()}"
                times = {"times_per_step": row.times}
                yield self.finding(title, words.next_step, times, severity="info", advised=False)

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        eager, compiled, data = profile.of(recomputing), list(recomputed(profile)), profile.data
        moments = [[*eager, *(part.likely for part in compiled)]]
        if compiled:  # cheap kernels between recomputed operators and the gradient may belong to either
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
    """`zero_grad(set_to_none=False)` launches kernels, and gradients are accumulated into existing memory.

    From 10 % of a step on, it is listed before generic fixes: torch does not use CUDA graphs with gradients that are
    kept.
    """

    id = "zeroed_gradients"
    panel = "operators"
    role = "blocking"
    blocking_percent = 10.0  # chosen on the recordings, as below
    words = Words(
        "Gradients are set to zero in {times} kernel{s} {each} and then accumulated",
        "Set them to None: `optimizer.zero_grad(set_to_none=True)`, which is the default. Gradients that are kept also "
        "prevent CUDA graphs: torch refuses to overwrite outputs of an earlier run",
        "Without these kernels",
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
        # All micro-batches except the first have to accumulate.
        change = zeroed if profile.of(micro_batches) else fix.in_sequence(zeroed, added)
        yield fix.Fix(launches / lane.steps, change, zeroed, subject=("zero_grad", "", 0))


class Batch(PricedCause):
    """4 or more equal micro-batches (forward and backward) run for each step of the optimizer.

    As one batch they launch once, and kernels that do not fill the GPU take no longer.
    """

    id = "batch"
    panel = "step"
    role = "generic"
    words = Words(
        "Forward and backward run {often} for each step of the optimizer{place}",
        "Combine the micro-batches into one batch, or into fewer and larger ones, if memory allows",
        "With one batch",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        if not profile.of(micro_batches):
            return
        steps, lane, queue = profile.of(micro_batches), profile.of(launch_sequence), profile.of(gpu_queue)
        count = len(steps[0]) - 1
        calls = host_slices(profile.trace, lambda name: is_group_call(name) and operation_of(name) in PAIRED)
        if count < _BATCHED or len(calls):
            return  # a pipeline needs several micro-batches to keep all stages busy
        first, others = np.zeros((2, len(lane)), bool)
        for edges in steps:
            first[edges[0] : edges[1]] = True
            others[edges[1] : edges[-1]] = True
        computing = profile.of(fix.are_kernels) & ~profile.of(fix.communicating)
        work = np.flatnonzero(first[queue.point] & computing)
        pieces, dropped = profile.of(host_segments), np.flatnonzero(others[queue.point])
        host = fix.without_calls(np.where(others[pieces.point], pieces.ns, 0), others, others)
        gone = fix.in_sequence(host, fix.fused(dropped, 0))
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
    """Gradients are reduced across ranks (DDP, FSDP2) in each micro-batch instead of only in the last one."""

    id = "reduced_once"
    panel = "step"
    section = "idle"
    role = "blocking"
    blocking_percent = 10.0
    words = Words(
        "Gradients are reduced across ranks {often} {each} ({name}), once for each backward",
        "Reduce gradients only in the last micro-batch: `with ddp.no_sync():` for all others, or "
        "fsdp_module.set_requires_gradient_sync(False), which keeps full gradients on each rank until then",
        "With one reduction",
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
    """An optimizer that is not fused launches 20 or more kernels per step."""

    id = "fused_optimizer"
    panel = "operators"
    words = Words(
        "The optimizer launches {times} kernel{s} {each}",
        "Use a fused optimizer: `torch.optim.AdamW(..., fused=True)`, or torch.compile(optimizer.step)",
        "With a fused optimizer",
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
        # Each step is one launch: of each kernel, the time beyond that of the shortest one remains, for its data.
        once = fix.as_one_call(profile, profile.of(optimizer_times), _FUSED_NS)
        work = np.flatnonzero(inside[queue.point] & ~first[queue.point])
        data_ns = queue.dur[work] - queue.dur[work].min(initial=np.iinfo(np.int64).max)
        left_ns = ((data_ns * passes).astype(np.int64) for passes in (_FUSED_PASSES, 1.0))
        changes = (fix.in_sequence(once, fix.fused(work, ns)) for ns in left_ns)
        name = trace.names[trace.name[optimizer_steps(trace)[0]]]
        yield fix.Fix(launches / lane.steps, *changes, subject=(name, "", 0))


def micro_batches(profile: Profile) -> list[Int64s]:
    """Return for each step the points at which its micro-batches begin, and the end of the last one.

    A micro-batch is a forward and a backward. [] if steps have only one, if an optimizer works between two, or if their
    numbers of launches differ. The first one may launch less because it does not accumulate: its earliest possible
    begin assumes as many launches as the second has.
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
    """Return the edges of the micro-batches of one step; an empty array if they differ."""
    points = begin + np.flatnonzero(launches[begin:end])
    ends = np.flatnonzero(backward[points] & ~np.append(backward[points][1:], False)) + 1
    counts = np.diff(ends)
    if len(ends) < 2 or np.ptp(counts) > _ALIKE * counts.max() or 2 * ends[0] < counts[0]:
        return np.zeros(0, np.int64)
    return np.concatenate((points[[max(ends[0] - counts[0], 0)]], points[ends - 1] + 1))


def recomputing(profile: Profile) -> list[tuple[int, int, int]]:
    """Return (slice of the thread, begin, end) of each forward that a checkpoint recomputed.

    With stacks, the function that recomputes. Otherwise the start of a checkpoint's node until the backward inside it,
    and forward operators at the start of a node.
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
    # Operators of a user's own backward are not recorded for autograd and have no sequence number.
    rows = rows[trace.sequence[rows] >= 0]
    nodes = fix.enclosing(trace, rows, operators.is_plain_node)
    for node, row in zip(nodes[nodes >= 0].tolist(), rows[nodes >= 0].tolist()):
        ends[node] = max(ends.get(node, 0), int(trace.ts[row] + trace.dur[row]))
    return [(row, int(trace.ts[row]), end) for row, end in ends.items()]


def _around_forwards(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return how much of each host segment may be spent on the stacks of anomaly mode: likely, and at most.

    torch stores them when it creates a node of its graph: in forward operators and around compiled graphs.
    """
    trace, pieces, blamed = profile.trace, profile.of(host_segments), profile.of(culprits)
    cause = np.array([culprit.cause for culprit in blamed.culprits])[blamed.code]
    is_forward = (trace.sequence[pieces.row] >= 0) & (trace.forward_thread[pieces.row] <= 0)
    likely = np.flatnonzero(((pieces.row >= 0) & is_forward) | (cause == "wrappers"))
    ns = np.zeros(len(pieces.row), np.int64)
    ns[likely], _ = excess(pieces.take(likely), thresholds.USUAL_CALL_NS)
    return ns, np.where(mask_at(likely, len(ns)) | (cause == "nothing"), pieces.ns, 0)


# What a compiled backward computes again, as a checkpoint inside the graph asks for. Inductor computes products of
# matrices, convolutions and attention again only when asked to. Attention and convolutions have backwards of another
# name: if they run forward in a backward, that is certain, and so are the products next to them that look like forward
# by operator, sizes and kernels.
_NUMBER = re.compile(r"_\d+$")  # of a kernel in its graph
Moment = tuple[int, int, int]  # a slice of its thread, begin and end (ns)
_Key = tuple[str, int, frozenset[int]]  # what a call computes: its name, sizes and, of a product, kernels


class Recomputed(NamedTuple):
    """A stretch of a compiled backward that computes its forward again."""

    compile_id: str
    heavy: list[Moment]  # its heavy operators, in order of time
    likely: Moment  # from the first one to the last
    widest: Moment  # from the end of the heavy one before to the begin of the next one


class _Heavy(NamedTuple):
    moment: Moment
    kind: str
    key: _Key


def recomputed(profile: Profile) -> Iterator[Recomputed]:
    """Yield what backwards compute again, in order of time."""
    trace, ownership, data = profile.trace, profile.of(Ownership), profile.data
    forward: dict[str, set[_Key]] = defaultdict(set)
    for call in all_calls(profile.of(region_calls)) if ownership.backwards else ():
        for graph in call.graphs:
            forward[call.compile_id] |= {operator.key for operator in _inside(profile, call.index, graph)}
    for row, code in ownership.backwards:
        begin, keys = int(trace.ts[row]), forward[ownership.names[code]]
        end = begin + int(trace.dur[row])
        heavy = _inside(profile, row, (begin, end))
        # A backward without a gradient by name may be a library's, which calls a forward: then the log decides.
        is_certain = any(operator.kind == "gradient" for operator in heavy)
        if not is_certain and not (data and data.of(checkpoint_lines, ownership.names[code])):
            continue
        begins = [*(operator.moment[1] for operator in heavy), end]
        ends = [begin, *(operator.moment[2] for operator in heavy)]
        again = [operator.kind != "gradient" and operator.key in keys for operator in heavy]
        for is_again, group in groupby(range(len(heavy)), again.__getitem__):
            indices = list(group)
            if is_again and any(heavy[index].kind == "forward" for index in indices):
                first, last = indices[0], indices[-1]
                moments = [heavy[index].moment for index in indices]
                likely, widest = (begins[first], ends[last + 1]), (ends[first], begins[last + 1])
                yield Recomputed(ownership.names[code], moments, (row, *likely), (row, *widest))


def _inside(profile: Profile, row: int, edges: tuple[int, int]) -> list[_Heavy]:
    """Return the heavy calls that begin between two moments (ns) on the thread of this slice."""
    trace, (rows, calls) = profile.trace, profile.of(_heavy_calls)
    first, last = trace.track_bounds[trace.track[row] :][:2].tolist()
    bounds = np.searchsorted(rows, first + np.searchsorted(trace.ts[first:last], edges))
    return calls[slice(*bounds.tolist())]


def _heavy_calls(profile: Profile) -> tuple[Int64s, list[_Heavy]]:
    """Return the outermost operators that launched heavy work, and their rows in order."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    is_heavy = mask_of(trace.names, lambda name: operators.heavy_work(name) is not None)
    launches = profile.of(launch_sequence).row[queue.point].astype(np.int64)
    outermost = outermost_ancestor(trace.parent, launches, lambda at: is_heavy[trace.name[at]])
    kernels: dict[int, set[int]] = defaultdict(set)  # codes of names, by row of the operator
    for row, code in zip(outermost.tolist(), trace.name[queue.row].tolist()):
        if row >= 0:  # generated kernels have other numbers in each graph: their operator identifies them
            kernels[row] |= set() if trace.names[code].startswith("triton_") else {code}
    rows, calls = np.array(sorted(kernels), np.int64), []
    for row, size in zip(rows.tolist(), codes_of(trace, "input_dims", rows).tolist()):
        name, begin = trace.names[trace.name[row]], int(trace.ts[row])
        kind = operators.heavy_work(name) or ""
        key = (_NUMBER.sub("", name), size, frozenset(kernels[row] if kind == "product" else ()))
        calls.append(_Heavy((row, begin, begin + int(trace.dur[row])), kind, key))
    return rows, calls
