"""What takes host time besides launching: Python, libraries, guards, allocations, waits and blocking copies?"""

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.cause import PricedCause, SpanContext, Words
from tb_torchcompile_plugin.analysis.causes.eager_points import outside
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile import compilation_details
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.runtime.roofline import argument_texts
from tb_torchcompile_plugin.profile import columns
from tb_torchcompile_plugin.profile.columns import Int64s, within
from tb_torchcompile_plugin.profile.model import attribution
from tb_torchcompile_plugin.profile.model.attribution import Attribution, culprits, location_of
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    HostSegments,
    gpu_queue,
    host_segments,
    launch_sequence,
)
from tb_torchcompile_plugin.profile.model.model import CALL_NS, model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import lines_around, samples
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import operators, python_frames, slices

# Chosen on the external programs of docs/benchmarks.md.
_LOOP = 4  # values per step, read one after the other
_FEW_LAUNCHES = 8  # between two of them: a loop with more is a program of its own
_FREED_OFTEN = 2  # calls that allocate for each that frees: with more, freeing is not the reason
_PINNED_BYTES_NS = 40  # bytes per ns that a copy from pinned memory moves, at least
_SMALL_BYTES = 1 << 16  # smaller copies are values that the host waits for
# Guards of one container's elements, and their share of all guards; chosen on the recordings.
_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE = 100, 0.25
_AS_TENSOR = (
    "Guards check Python lists and dicts element by element in each call: convert {source} to a tensor once, for "
    "example with register_buffer, or read it outside the compiled function"
)
_ON_CPU = (
    "This operator runs on the CPU: move its tensors to the GPU, create them there, or move the operator out of the "
    "step"
)
_NEW_SHAPES = (
    "The input shapes change, and libraries do more work for new shapes: keep shapes constant, or pad or bucket "
    "them"
)
_SAME_SHAPES = (
    "The input shapes are the same in each step: call this operator less often, or once for many inputs. If only the "
    "first steps are slow, the library selects its algorithm in them (cuDNN benchmarks): record later steps"
)
# Calls that return memory to the driver, which is then requested again.
_FREED = Words(
    "Memory is returned to the driver or requested again {often} {each} ({name}){place}",
    "Remove torch.cuda.empty_cache() if it is called{place}, so that torch reuses cached memory. Otherwise memory is "
    "almost full, or PYTORCH_NO_CUDA_MEMORY_CACHING is set",
    "Without these calls",
)
_TO_HOST = Words(
    "Copies from the GPU to unpinned memory block the host{place}",
    "Allocate pinned memory once, torch.empty(..., pin_memory=True), copy with `pinned.copy_(tensor, "
    "non_blocking=True)`, and synchronize before you read it. Or copy only what you need",
    "With pinned memory",
)


class HostTimeCause(PricedCause):
    """Host time of one cause that can be removed."""

    usual_ns: ClassVar[int] = 0  # of a call; only the excess can be removed

    def words_of(self, row: WhatIf) -> Words:
        """Name a known library if its function takes the time."""
        work = python_frames.library_work(row.name)
        if work is None:
            return self.words
        return Words(f"{work.library} {work.does}{{place}}", work.next_step, "Without this time")

    def fix_of(self, culprit: Attribution) -> str | None:
        """Return the id of the fix that removes this host time; None if it belongs to another cause."""
        return self.kind if culprit.cause == self.kind else None

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane, blamed = profile.trace, profile.of(launch_sequence), profile.of(culprits)
        kinds = np.array([slices.call_kind(name) == self.kind for name in trace.names], bool)
        calls = (lane.row >= 0) & ~lane.launches & ~lane.synchronises & kinds[trace.name[lane.row]]
        groups: dict[str, list[int]] = {self.kind: []} if calls.any() else {}
        for code, culprit in enumerate(blamed.culprits):
            fix_id = self.fix_of(culprit)
            if fix_id and not python_frames.is_profiler_function(culprit.name):
                groups.setdefault(fix_id, []).append(code)
        for fix_id, codes in groups.items():
            yield from self.without(profile, fix_id, np.flatnonzero(np.isin(blamed.code, codes)), calls)

    def without(self, profile: Profile, fix_id: str, selected: Int64s, calls: fix.Bools) -> Iterator[fix.Fix]:
        """Yield the selected segments and these calls without their host time."""
        segments, lane = profile.of(host_segments), profile.of(launch_sequence)
        ns, times = excess(segments.take(selected), self.usual_ns)
        if not times and not calls.any():
            return
        lost = np.zeros(len(segments.point), np.int64)
        lost[selected] = ns
        change = fix.in_sequence(fix.without_host_time(lost), fix.with_call_time(calls, 0))
        whole = self.whole_calls(profile, selected[ns > 0])
        times += int((calls & (lane.end > lane.begin)).sum())
        changes = (fix.in_sequence(change, whole), change) if whole else (change,)
        subject = self.subject(profile, selected, ns, calls)
        yield fix.Fix(times / lane.steps, *changes, subject=subject, id=fix_id)

    def subject(self, profile: Profile, selected: Int64s, ns: Int64s, calls: fix.Bools) -> fix.Subject:
        """Return what takes most of the time, with the first user line of any part."""
        blamed = profile.of(culprits)
        if not ns.any():
            return fix.longest_call(profile, calls), "", 0
        ns_of = np.bincount(blamed.code[selected], ns)
        largest = [blamed.culprits[code] for code in np.argsort(-ns_of) if ns_of[code] > 0]
        names = {culprit.name for culprit in largest}
        without_directions = {operators.without_direction(name) for name in names}
        name = largest[0].name
        if len(without_directions) == 1 < len(names):
            name = f"{without_directions.pop()}_forward and _backward"
        located = next((culprit for culprit in largest if culprit.file), largest[0])
        return name, located.file, located.line

    def whole_calls(self, profile: Profile, segments: Int64s) -> fix.Change | None:
        """Return the change that removes all work inside the calls of these segments, None if that work stays."""
        return None


class Garbage(HostTimeCause):
    """Python collects garbage, if that was [recorded](../concepts/step.md#step-breakdown)."""

    id = "garbage_collection"
    kind = "garbage"
    panel = "step"
    words = Words(
        "Python collects garbage{place}",
        "Collect garbage less often: `gc.freeze()` after start-up, `gc.disable()`, and gc.collect() every few hundred "
        "steps",
        "Without garbage collection",
    )


class DataLoading(HostTimeCause):
    """The loop waits for the next batch."""

    id = "data_loading"
    panel = "step"
    words = Words(
        "The loop waits for the next batch{place}",
        "Load batches ahead: `DataLoader(..., num_workers=4, pin_memory=True, prefetch_factor=2, "
        "persistent_workers=True)`",
        "Without the wait",
    )


class Python(HostTimeCause):
    """A user function, with its calls outside torch, takes host time.

    A library that prepares data, computes metrics or writes logs is named, and its operators count as its time.
    """

    id = "python"
    panel = "step"
    words = Words(
        "Python code takes host time{place}",
        "Move this code out of the step: run it once before the loop, in data loader workers, or with tensors",
        "Without this time",
    )

    def fix_of(self, culprit: Attribution) -> str | None:
        return f"python:{culprit.file}:{culprit.line}" if _is_of_line(culprit) else None

    def whole_calls(self, profile: Profile, segments: Int64s) -> fix.Change | None:
        """Return the change that removes the library work of the line, which a step need not wait for."""
        blamed = profile.of(culprits)
        times = fix.slice_times(profile, _library_calls(profile, np.unique(blamed.call[segments])))
        if times:
            return fix.without_host_work(profile, times)
        lines = {blamed.culprits[code][2:] for code in np.unique(blamed.code[segments]).tolist()}
        return _without_sampled_libraries(profile, lines)


class HostTimeByNameCause(HostTimeCause):
    """Host time above that of a usual call; each name and line is one fix."""

    usual_ns = thresholds.USUAL_CALL_NS

    def fix_of(self, culprit: Attribution) -> str | None:
        if culprit.cause != self.kind or _is_of_line(culprit) or python_frames.is_backward_call(culprit.name):
            return None
        name = operators.without_direction(culprit.name)  # an operator and its backward are one fix
        line = f":{culprit.file}:{culprit.line}" if name == culprit.name else ""
        return f"{self.kind}:{name or 'nothing recorded'}{line}"


class Library(HostTimeByNameCause):
    """A torch function takes more than the usual 50 µs per call."""

    id = "library"
    panel = "your_code"
    section = "functions"
    words = Words(
        "{name} takes host time{place}",
        "Call this function less often or outside the step. Do work that it repeats for each parameter or batch at "
        "once",
        "Without this time",
    )

    def whole_calls(self, profile: Profile, segments: Int64s) -> fix.Change | None:
        """Return the change that removes long calls without kernel launches: the step does not need them."""
        trace, lane = profile.trace, profile.of(launch_sequence)
        rows = np.unique(profile.of(culprits).call[segments])
        rows = rows[(rows >= 0) & (trace.dur[rows] > 2 * thresholds.USUAL_CALL_NS)]
        computing = np.flatnonzero(profile.of(fix.launches_kernels))
        for track, on_track in columns.by_track(trace, rows):
            launched = np.sort(lane.begin[computing[lane.track[computing] == track]])
            window = trace.ts[on_track], trace.ts[on_track] + trace.dur[on_track]
            needed = np.diff(np.searchsorted(launched, window), axis=0)[0] > 0
            rows = rows[~np.isin(rows, on_track[needed])]
        times = fix.slice_times(profile, rows)
        return fix.without_host_work(profile, times) if times else None


class SlowOperator(HostTimeByNameCause):
    """An operator takes more than the usual 50 µs per call, for example because its library plans for a new shape."""

    id = "operator"
    panel = "operators"
    words = Words(
        "{name} takes host time{place}",
        "This operator does more than launch kernels: for example, cuDNN plans for each new shape. Keep shapes "
        "constant, or pad or bucket them. record_shapes=True records whether they change",
        "Without this time",
    )

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        rows, profile = self.large(context), context.profile
        return (self.advise(context, row, next_step=_operator_advice(profile, row)) for row in rows)


class Nothing(HostTimeByNameCause):
    """More than 50 µs at a time of unaccounted host time."""

    id = "nothing"
    panel = "step"
    role = "symptom"
    words = Words(
        "Host time between operators is unaccounted for",
        "Record with with_stack=True to see the line. This time is either Python code outside torch or waiting",
        "Without this time",
    )


class Guards(HostTimeCause):
    """Cache lookups check guards."""

    id = "guards"
    panel = "compilations"
    section = "regions"
    words = Words(
        "Guards are checked {often} {each}{place}",
        "Compile one larger function instead of many small ones, or skip guards that always hold: "
        "`torch.compile(model, options={{'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe}})`",
        "Without guards",
    )

    def advise(
        self, context: SpanContext, row: WhatIf, *, title_end: str = "", next_step: str = "", where: str = ""
    ) -> Finding:
        """Name the list or dict whose elements a large share of the guards compare."""
        ran, data = context.regions_that_ran, context.profile.data
        keys = {(row.epoch, row.compile_id) for row in context.rows(compilations) if row.compile_id in ran}
        frames = (data.of(compilation_details.guard_checks, *key) for key in sorted(keys)) if data else ()
        checks = [guard for frame in frames for guard in frame.guards]
        elements = compilation_details.most_guarded_container(checks)
        if elements and elements.many >= max(_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE * len(checks)):
            where = elements.line or ""
            at = f", at {where}" if where else ""
            title_end = f". {elements.many:,} guards compare the elements of {elements.source}{at}"
            next_step = f"{_AS_TENSOR.format(source=elements.source)}. {self.filled(row).next_step}"
        return super().advise(context, row, title_end=title_end, next_step=next_step, where=where)


class DriverAllocations(HostTimeCause):
    """Calls request memory from the driver or return it."""

    id = "allocation"
    panel = "step"
    words = Words(
        "Memory is requested from the driver {often} {each} ({name}){place}",
        "Let torch reuse cached memory: do not call torch.cuda.empty_cache() in the loop. Pin buffers once and reuse "
        "them",
        "Without these calls",
    )

    def words_of(self, row: WhatIf) -> Words:
        return _FREED if slices.is_free(row.name) else self.words

    def subject(self, profile: Profile, selected: Int64s, ns: Int64s, calls: fix.Bools) -> fix.Subject:
        """Return the calls that allocate, together with those that free if there are about as many.

        Then memory is allocated because it was freed, and the line is that of the calls that free.
        """
        names, name = profile.trace.names, profile.trace.name
        rows = np.union1d(profile.of(host_segments).row[selected], profile.of(launch_sequence).row[calls])
        frees = columns.mask_of(names, slices.is_free)[name[rows]]
        freeing, allocating = rows[frees], rows[~frees]
        groups = [freeing, allocating] if _FREED_OFTEN * len(freeing) >= len(allocating) else [allocating]
        called = [names[np.bincount(name[group]).argmax()] for group in groups if len(group)]
        return " and ".join(called), *attribution.most_called_at(profile, groups[0])


class ModuleLoad(HostTimeCause):
    """Calls load code onto the GPU."""

    id = "module_load"
    panel = "step"
    words = Words(
        "Code is loaded onto the GPU ({name}){place}",
        "This happens once per kernel: warm up with every shape before the profiled steps",
        "Without loading",
    )


class Synchronise(PricedCause):
    """Calls wait for the GPU, named by the operator around them (`aten::item`, `aten::nonzero` …).

    Not reported if the fix of an operator, a function or a copy removes the same wait.
    """

    id = "synchronise"
    panel = "step"
    superseded_by = ("operator", "python", "library", "garbage_collection", "data_loading", "copies")
    words = Words(
        "The host waits for the GPU {often} {each}, in {name}{place}",
        "Avoid reading the value, or read it less often: keep it on the GPU, log every 100 steps, or copy it with "
        "non_blocking=True",
        "Without waiting",
    )

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane = profile.trace, profile.of(launch_sequence)
        waits = lane.synchronises & profile.of(model).waits.any(axis=1)
        operators = fix.outermost_operator(trace, np.where(lane.row >= 0, lane.row, -1))
        callers = np.where(lane.row >= 0, trace.parent[lane.row], -1)
        asked_by = attribution.ancestor_causes(profile, np.where(operators >= 0, operators, callers))
        for name, user in sorted({*zip(asked_by.name[waits].tolist(), asked_by.user[waits].tolist())}):
            points = waits & (asked_by.name == name) & (asked_by.user == user)
            times = fix.slice_times(profile, np.unique(operators[points & (operators >= 0)]))
            inside, _ = fix.points_inside(profile, times)
            inside &= ~profile.of(fix.launches_kernels)
            file, line = location_of(profile, user)
            called = trace.names[name] if name >= 0 else fix.longest_call(profile, points)
            change = fix.without_calls(fix.time_inside(profile, times), points, inside | points)
            loops = _in_loops(profile, points)
            whole = fix.in_sequence(change, fix.compiled_whole(profile, loops)) if loops.any() else change
            count, fix_id = int(points.sum()), f"synchronise:{called}:{file}:{line}"
            yield fix.Fix(count / lane.steps, whole, change, subject=(called, file, line), id=fix_id)


class Copies(PricedCause):
    """Copies of more than 64 KiB between a GPU and unpinned memory block the host, in either direction."""

    id = "copies"
    panel = "step"
    section = "idle"
    words = Words(
        "Copies to the GPU from unpinned memory block the host{place}",
        "Pin the memory with DataLoader(..., pin_memory=True), or once with tensor.pin_memory(), and do not wait for "
        "the copy: `tensor.to(device, non_blocking=True)`",
        "With pinned memory",
    )

    def words_of(self, row: WhatIf) -> Words:
        return _TO_HOST if row.id == "copies:Device -> Pageable" else self.words

    def fixes(self, profile: Profile) -> Iterator[fix.Fix]:
        trace, lane, queue = profile.trace, profile.of(launch_sequence), profile.of(gpu_queue)
        for direction in ("Pageable -> Device", "Device -> Pageable"):
            named = np.array([direction in name for name in trace.names], bool)
            work = np.flatnonzero(named[trace.name[queue.row]])
            bytes_ = columns.values_of(trace, "bytes", queue.row[work])
            work, bytes_ = work[bytes_ > _SMALL_BYTES], bytes_[bytes_ > _SMALL_BYTES]
            if not len(work):
                continue
            points = columns.mask_at(queue.point[work], len(lane))
            dur = np.minimum((bytes_ / _PINNED_BYTES_NS).astype(np.int64) + CALL_NS, queue.dur[work])
            behind = np.concatenate(([False], points[:-1])) & lane.synchronises
            behind &= profile.of(model).waits.any(axis=1)
            largest = work[[np.argmax(queue.dur[work])]]
            user = attribution.ancestor_causes(profile, lane.row[queue.point[largest]]).user
            name = trace.names[trace.name[queue.row[largest[0]]]]
            change = fix.in_sequence(fix.without_waiting(points | behind), fix.with_durations(work, dur))
            subject = name, *location_of(profile, int(user[0]))
            yield fix.Fix(len(work) / lane.steps, change, subject=subject, id=f"copies:{direction}")


def _operator_advice(profile: Profile, row: WhatIf) -> str:
    """Return what to do about the operator of a fix, "" if neither its launches nor its shapes determine it."""
    trace, lane = profile.trace, profile.of(launch_sequence)
    name = operators.without_direction(row.name.removesuffix(" and _backward"))
    calls = columns.host_slices(trace, lambda other: operators.without_direction(other) == name)
    calls = calls[(trace.ts[calls] >= lane.begin[0]) & (trace.ts[calls] < lane.begin[-1])]
    launches, is_called = lane.row[lane.launches].astype(np.int64), columns.mask_at(calls, len(trace))
    launching = np.unique(first_ancestor(trace.parent, launches, is_called))
    launches_little = 2 * trace.dur[launching[launching >= 0]].sum() < trace.dur[calls].sum()
    computes = not (operators.only_allocates(name) or operators.is_view(operators.plain_name(name)))
    if name.startswith(operators.ATEN) and computes and launches_little:
        return _ON_CPU
    shapes: dict[int, set[str]] = defaultdict(set)
    step = within(profile.of(StepWindows).windows, trace.ts[calls])
    for number, (_, text) in zip(step.tolist(), argument_texts(profile, "input_dims", calls)):
        shapes[number].add(text)
    if len(shapes) < 2 or any("" in texts for texts in shapes.values()):
        return ""
    return _SAME_SHAPES if len({*map(frozenset, shapes.values())}) == 1 else _NEW_SHAPES


def _is_of_line(culprit: Attribution) -> bool:
    """Whether a user line, with its calls outside torch, takes the time."""
    of_torch = culprit.cause == "library" and python_frames.is_torch_function(culprit.name)
    return culprit.cause in ("python", "library") and bool(culprit.file) and not of_torch


def _library_calls(profile: Profile, calls: Int64s) -> Int64s:
    """Return the calls of such libraries, except those that call back into the program, which a step needs."""
    trace = profile.trace
    calls = calls[calls >= 0]
    calls = calls[columns.mask_of(trace.names, python_frames.is_library_work)[trace.name[calls]]]
    if not len(calls):
        return calls
    functions = columns.host_slices(trace, python_frames.is_program_function, (slices.PYTHON_FUNCTION,))
    around = first_ancestor(trace.parent, functions, columns.mask_at(calls, len(trace)))
    return np.setdiff1d(calls, around)


def _without_sampled_libraries(profile: Profile, lines: set[tuple[str, int]]) -> fix.Change | None:
    """Return the change that removes all work while these lines call such libraries, by samples; None without any."""
    lane, segments = profile.of(launch_sequence), profile.of(host_segments)
    numbers = [
        number
        for number, line in enumerate(profile.of(samples).lines)
        if (line.file, line.line) in lines and python_frames.is_library_work(line.called)
    ]
    if not numbers:
        return None
    points = np.isin(lines_around(profile, lane.track.astype(np.int64), lane.begin), numbers)
    middle = (segments.begin + segments.end) // 2
    inside = np.isin(lines_around(profile, lane.track[segments.point].astype(np.int64), middle), numbers)
    return fix.without_calls(np.where(inside, segments.ns, 0), points, points)


def excess(segments: HostSegments, usual_ns: int) -> tuple[Int64s, int]:
    """Return how much each segment exceeds the usual time of its slice, and how many slices do."""
    row, ns = segments.row, segments.ns
    _, slice_ = np.unique(np.where(row < 0, -1 - np.arange(len(row)), row), return_inverse=True)
    total = np.bincount(slice_, ns)
    share = np.maximum(total - usual_ns, 0) / np.maximum(total, 1)
    return (ns * share[slice_]).astype(np.int64), int((total > usual_ns).sum())


def _in_loops(profile: Profile, waits: fix.Bools) -> fix.Bools:
    """Return the points of loops that read values one by one with a few eager operators in between.

    If all values were read at once, these operators could be one graph. Not if compiled code runs in between, because
    the values then decide what runs next.
    """
    lane, indices = profile.of(launch_sequence), np.flatnonzero(waits)
    behind = np.searchsorted(indices, np.arange(len(lane)), side="right")
    compiled = np.bincount(behind, ~profile.of(outside), len(indices) + 1) > 0
    compiled |= np.bincount(behind, lane.launches, len(indices) + 1) > _FEW_LAUNCHES
    step = np.searchsorted(lane.marks, indices, side="right")
    repeats = np.concatenate(([False], step[1:] == step[:-1], [False])) & ~compiled
    if repeats.sum() < _LOOP * lane.steps:
        return np.zeros(len(lane), bool)
    return np.asarray(repeats[behind] & (lane.launches | lane.synchronises))
