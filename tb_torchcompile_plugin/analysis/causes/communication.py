"""Which communication of ranks and GPUs could be avoided, overlapped or merged?"""

from collections.abc import Iterator
from math import ceil

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause, SpanContext, Words
from tb_torchcompile_plugin.analysis.causes.gpu import Speed, faster
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Int64s
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    OVERLAP_GAIN,
    gpu_queue,
    launch_sequence,
    overlappable_share,
)
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor, outermost_ancestor
from tb_torchcompile_plugin.torch_names import collectives, operators
from tb_torchcompile_plugin.torch_names.collectives import GPU_BACKENDS
from tb_torchcompile_plugin.torch_names.slices import DATA_PARALLEL, OPERATOR

# Chosen on the external programs of docs/benchmarks.md, except for the bucket.
_SMALL_BYTES = 4 << 20  # smaller messages consist mostly of the call
_BUCKET_BYTES = 25 << 20  # DDP's default bucket (`bucket_cap_mb`)
_MANY = 16  # small collectives per step


class Communication(PricedCause):
    """Communication takes a share of the profiled time without overlapping computation, or the host waits for it."""

    id = "communication"
    panel = "step"
    section = "collectives"
    limits = ("communication_percent",)
    words = Words(
        "Communication does not overlap with computation ({name})",
        "Overlap communication with the backward pass: use smaller DDP buckets (bucket_cap_mb) or FSDP prefetching",
        "With overlap",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        work = np.flatnonzero(profile.of(fix.communicating))
        return overlap_collectives(profile, work, profile.of(gpu_queue).dur[work])

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        used = context.profile.of(utilization)
        us = used.verdict.communication_us if used else 0.0
        share = context.share(us)
        if share < thresholds.communication_percent:
            return
        yield self.finding(
            "Communication that does not overlap with computation takes "
            f"{duration(us / context.step_count)} {context.time_unit.each}, "
            f"{percent(share)} of the profiled time",
            f"{self.words.next_step}. Also compare ranks: waiting for a slower rank looks the same",
            {"communication_us_per_step": us / context.step_count, "share_percent": share},
            saves_us=us,
            share=share,
            by=context.best(self.kind),
        )


class SmallCollectives(PricedCause):
    """16 or more collectives per step exchange parameters and gradients in messages of less than 4 MiB.

    The prediction assumes messages of 25 MiB.
    """

    id = "small_collectives"
    panel = "step"
    section = "collectives"
    words = Words(
        "{times} small collectives {each} ({name}) exchange parameters and gradients",
        "Merge them: apply fully_shard to blocks of the model instead of single layers, use DDP’s buckets, or reduce "
        "one tensor of all gradients instead of looping over them",
        "With a few large ones",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
        calls, moved = _movable(profile)
        calls, moved = calls[moved < _SMALL_BYTES], moved[moved < _SMALL_BYTES]
        if len(calls) < _MANY * lane.steps:
            return
        left = ceil(moved.sum() / lane.steps / _BUCKET_BYTES) * lane.steps / float(len(calls))
        is_label = columns.mask_of(trace.names, collectives.is_of_fsdp)
        labels = outermost_ancestor(trace.parent, calls, lambda at: is_label[trace.name[at]])
        times = fix.slice_times(profile, np.unique(np.where(labels >= 0, labels, calls)))
        points, _ = fix.points_inside(profile, times)
        work = np.flatnonzero(points[queue.point] & profile.of(fix.communicating))
        on_host = fix.in_sequence(
            fix.without_host_time((fix.time_inside(profile, times) * (1 - left)).astype(np.int64)),
            fix.with_call_time(points, (profile.of(model).own * left).astype(np.int64)),
        )
        fewer = fix.with_durations(work, (queue.dur[work] * left).astype(np.int64))
        subject = trace.names[trace.name[calls[0]]], "", 0
        yield fix.Fix(len(calls) / lane.steps, fix.in_sequence(on_host, fewer), on_host, subject=subject)


class DataParallel(Cause):
    """One process drives several GPUs through `DataParallel` (warning)."""

    id = "data_parallel"
    panel = "step"
    section = "collectives"

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        devices = len(np.unique(context.profile.of(gpu_work).device))
        if devices > 1 and DATA_PARALLEL in context.profile.trace.names:
            yield self.finding(
                f"One process drives {plural(devices, 'GPU')} with DataParallel, which copies the model in each step",
                "Use torch.nn.parallel.DistributedDataParallel: one process per GPU, started by torchrun",
                {"devices": devices},
                severity="warning",
            )


class SlowBackend(Cause):
    """Ranks with GPUs communicate through a host backend, such as Gloo (warning)."""

    id = "slow_backend"
    panel = "step"
    section = "collectives"

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        if not len(context.profile.of(gpu_work).index):
            return
        info = context.profile.trace.distributed
        backend, size = str(info.get("backend", "")), info.get("world_size")
        is_on_host = backend and not any(name in backend for name in GPU_BACKENDS)
        if is_on_host and isinstance(size, int) and size > 1:
            yield self.finding(
                f"{size} ranks with GPUs communicate through {backend}, which sends data through the host",
                'Use the GPU backend: `torch.distributed.init_process_group("nccl")`',
                {"ranks": size},
                severity="warning",
            )


def overlap_collectives(profile: Profile, work: Int64s, last: Int64s) -> Iterator[fix.Fix]:
    """Yield these collectives overlapped with computation for their last ns: before that, they may only wait."""
    share = overlappable_share(profile, work, last)
    speed = Speed(1 - OVERLAP_GAIN * share, 1.0, 1 - share)
    return faster(profile, Communication.kind, work, speed, part=last)


def _movable(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return the c10d calls of known size that could be merged, and their bytes."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    described = columns.host_slices(trace, collectives.PARAM_COMMS.__eq__)
    described = described[(trace.ts[described] >= lane.begin[0]) & (trace.ts[described] < lane.begin[-1])]
    call = fix.enclosing(trace, described, collectives.is_group_call)
    types = [collectives.element_bytes(text) or -1 for text in [*(trace.texts.get("dtype") or ()), ""]]
    element = np.array(types)[columns.codes_of(trace, "dtype", described)]
    counts = [columns.codes_of(trace, name, described) for name in ("in_elements", "out_elements")]
    moved = np.maximum(*counts) * element
    has_size = (call >= 0) & (moved >= 0) & (element > 0)
    order = np.argsort(trace.ts[call[has_size]], kind="stable")
    call, moved = call[has_size][order], moved[has_size][order]
    mergeable = _can_merge(profile, call)
    return call[mergeable], moved[mergeable]


def _can_merge(profile: Profile, call: Int64s) -> fix.Bools:
    """Return which calls (in order of time) could be merged with others.

    These are calls of DDP and FSDP2, and of user loops that compute nothing in between. Calls that operators of the
    model make have to stay in sequence.
    """
    trace, queue = profile.trace, profile.of(gpu_queue)
    operator = first_ancestor(
        trace.parent, trace.parent[call], columns.mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    )
    by_library = fix.enclosing(
        trace, call, lambda name: collectives.is_of_fsdp(name) or operators.reduces_gradients(name)
    )
    moves = columns.mask_of(trace.names, lambda name: collectives.operation_of(name) in collectives.MERGEABLE)
    computing = profile.of(fix.are_kernels) & ~profile.of(fix.communicating)
    launches = np.sort(profile.of(launch_sequence).begin[queue.point[computing]])
    before = np.searchsorted(launches, trace.ts[call])
    same = np.concatenate(([False], before[1:] == before[:-1], [False]))
    in_a_row = (same[1:] | same[:-1])[: len(call)]  # nothing is computed before or after it
    return np.asarray(moves[trace.name[call]] & ((by_library >= 0) | ((operator < 0) & in_a_row)))
