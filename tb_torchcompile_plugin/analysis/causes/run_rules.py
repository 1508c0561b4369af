"""What slows the host down besides launching, what slows the GPU down, and was the recording made well enough?"""

import re
from collections.abc import Callable, Iterator

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.break_costs import (
    break_sites,
    cost_of_breaks,
    direct_percent,
    direct_sentence,
    direct_us,
)
from tb_torchcompile_plugin.analysis.causes.fix import work_named
from tb_torchcompile_plugin.analysis.causes.fix_words import step_after
from tb_torchcompile_plugin.analysis.causes.rule import Rule, SpanContext, called_at, named_with_caller
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compile_time import count_frames
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import size_advice
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreakSite
from tb_torchcompile_plugin.analysis.compile.recompile_moments import calls_by_id
from tb_torchcompile_plugin.analysis.compile.recompiles import failed_guards_clause, recompiles
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    duration,
    often,
    percent,
    plural,
    plural_of_mean,
)
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import requested_graphs
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import DATA_MOVING_CATEGORIES, has_dominant_kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_WORDS, LedgerSite, ledger
from tb_torchcompile_plugin.analysis.runtime.memory import held_memory
from tb_torchcompile_plugin.analysis.runtime.op_shapes import launching_operators
from tb_torchcompile_plugin.analysis.runtime.span_report import unnamed_cpu_kernels
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import Part, step_breakdown
from tb_torchcompile_plugin.profile.columns import host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.regions import calls_cut_by_breaks, compiling_in_trace, resumes
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import busy, gpu_work
from tb_torchcompile_plugin.profile.intervals import Intervals, covered_ns
from tb_torchcompile_plugin.profile.model.clock import recorded_clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.collectives import GPU_BACKENDS
from tb_torchcompile_plugin.torch_names.graph_breaks import BreakKind, break_kind, is_generic_hint
from tb_torchcompile_plugin.torch_names.kernels import is_anonymous, short_kernel
from tb_torchcompile_plugin.torch_names.operators import (
    is_embedding_backward,
    is_foreach,
    is_library_operator,
)
from tb_torchcompile_plugin.torch_names.python_frames import is_user_file
from tb_torchcompile_plugin.torch_names.slices import (
    CALL_CATS,
    DATA_PARALLEL,
    LOOKUPS,
    PYTHON_FUNCTION,
    is_autotuning,
)

# What helps against a break for which torch has no hint.
_REWRITE = "Write it with torch's own operators, or move it out of the compiled function"
_FIXES: dict[BreakKind, str] = {
    "explicit": "Drop the call that asks for it, or move it out of the compiled function",
    "print": "Print and log outside of the compiled function",
    "item": "Keep it a tensor, or read it outside of the compiled function",
    "data_dependent": "Compute both and choose by torch.where, or use torch.cond",
    "call": _REWRITE,
    "builtin": _REWRITE,
    "other": _REWRITE,
}
_MAX_SITES = 3  # large sites that are findings: the table has all of them
_EXPLAINED = (
    0.5  # share of a site that a fix must bring to be its explanation; chosen by eye on the recordings
)
_VERSION = re.compile(r"^\d+(?:\.\d+)+$")
# Kernel categories that come with torch or a library: the user does not write them.
_NOT_WRITTEN = (
    "gemm",
    "convolution",
    "attention",
    "communication",
    "memcpy",
    "memset",
    "triton_template",
    "aten",
)


def _graph_breaks(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report graph breaks that cost time in the profiled steps."""
    profile, cost = context.profile, context.profile.of(cost_of_breaks)
    by = context.best("graph_breaks") if cost else None
    direct = profile.of(direct_us)
    share = cost.gain_percent if cost else profile.of(direct_percent) or 0.0
    sites = _sites_that_ran(context)
    if not sites or share < thresholds.gain_percent:
        return
    worst = sites[0]
    # Where the worst of all is in a library, the worst one in the user's own files, too.
    own = None
    if worst.file and not is_user_file(worst.file):
        own = next((site for site in sites if site.file and is_user_file(site.file)), None)
    caller = "" if not worst.breaks or is_user_file(worst.file) else called_at(worst.breaks[0].stack)
    where, also = _line_of(worst), _line_of(own) if own else caller
    addition = f" ({'the dearest in your own code' if own else 'called'} at {also})" if also else ""
    evidence: Evidence = {"breaks": len(sites), "share_percent": share}
    if cost:
        evidence |= {"gain_us_per_step": cost.gain_us}
        if worst.saves_us is not None:
            evidence |= {"dearest_us_per_step": worst.saves_us}
    elif direct is not None:
        evidence |= {"direct_us_per_step": direct}
    advice = _hint(worst)
    if len(sites) > 1:
        advice = f"Begin with the dearest, {where}. {advice}"
        if own:
            advice = f"{advice.rstrip('.')}. At {also}: {_hint(own)}"
    each = cost.gain_us if cost else direct
    yield rule.finding(
        context,
        _break_title(context, len(sites), f"{where}{addition}", by),
        advice,
        evidence,
        saves_us=None if each is None else each * context.step_count,
        row=f"graph_breaks:{worst.key}" if worst.breaks else None,
        by=by,
        where=[where, also] if also else [where],
    )


def _sites_that_ran(context: SpanContext) -> list[GraphBreakSite]:
    """Return the sites that ran in the span, most expensive first; without costs the most frequent first."""
    calls, lines = context.profile.of(calls_by_id), context.profile.of(resumes)
    cut = {call.compile_id for call in context.profile.of(calls_cut_by_breaks)} if lines else ()
    rows = context.profile.of(break_sites)
    priced = [row for row in rows if row.saves_us is not None or row.host_us is not None]
    ran = [row for row in rows if cut and cut.intersection(row.compile_ids)]
    ran.sort(key=lambda row: -sum(calls[name] for name in row.compile_ids))
    return priced or ran


def _line_of(site: GraphBreakSite) -> str:
    return at_line(site.file, site.line) or ", ".join(site.compile_ids)


def _break_title(context: SpanContext, count: int, where: str, by: WhatIf | None) -> str:
    breaks = plural(count, "graph break")
    if by and count == 1:
        return f"{breaks} at {where}: {step_after(by.predicted, 'without it', context.time_unit)}"
    if by:
        return (
            f"{breaks}, the dearest at {where}: {step_after(by.predicted, 'without them', context.time_unit)}"
        )
    at = f"at {where}" if count == 1 else f"the dearest at {where}"
    return f"{breaks}, {at}. {direct_sentence(context.profile)}"


def _hint(site: GraphBreakSite) -> str:
    """Return torch's hint, if it has one that is about this break."""
    if not site.breaks:
        return _FIXES["other"]
    graph_break = site.breaks[0]
    hints = (hint for hint in graph_break.hints if not is_generic_hint(hint))
    kind = break_kind(graph_break.reason, graph_break.explanation)
    return next(hints, _FIXES.get(kind, "Move what breaks it out of the compiled function"))


def _recompiles(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report frames that torch compiled again while they were profiled."""
    inside = [row for row in context.recompilations if context.compiling_us([row])]
    us = context.compiling_us(inside)
    share = context.share(us)
    if share < thresholds.recompiles_percent:
        return
    longest = max(inside, key=lambda row: row.duration_ns)
    key, caller = longest.key, called_at(longest.stack)
    ids = {row.key.compile_id for row in inside}
    reasons = [row for row in context.rows(recompiles) if row.compile_id in ids]
    guards = [guard for row in reasons for guard in row.guards[:1]]
    guard = next(iter(guards), None)
    row = next((row for row in reasons if row.compile_id == key.compile_id), None)
    frame = f"{named_with_caller(row.function, row.file, row.line, caller)} " if row else ""
    count, frames = count_frames(inside), {(row.function, row.file, row.line) for row in reasons}
    if len(frames) > 1:
        frame = f"{plural(len(frames), 'function')}, longest {frame}"
    where = caller or (at_line(row.file, row.line) if row else "")
    sizes = context.profile.of(size_advice) if guard and guard.kind in ("tensor_size", "shape") else None
    advice = (sizes and sizes.sentence) or (guard and guard.advice)
    yield rule.finding(
        context,
        f"Torch recompiled {frame}{often(count)} while it was profiled, which took "
        f"{duration(us)}{failed_guards_clause(guards)}",
        advice or "See which guard failed, and keep what it checks the same",
        {"recompiles": count, "compile_us": us, "share_percent": share},
        saves_us=us,
        by=context.best("compile"),
        row=f"recompiles:{key.compile_id},{key.epoch}",
        where=[where] if where else [],
        code=sizes.code if sizes else None,
    )


def _compile_in_steps(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report compiling for the first time in the profiled steps; recompiling has a rule of its own."""
    again, summary = context.recompilations, context.summary
    if summary:
        compiling_us = context.compiling_us(summary.compilations)
    else:
        compiling_us = context.inside_us(context.profile.of(compiling_in_trace))
    us = compiling_us - context.compiling_us(again)
    share = context.share(us)
    if share < thresholds.compile_percent:
        return
    yield rule.finding(
        context,
        f"{'Compiling for the first time' if again else 'Compiling'} took {duration(us)}, "
        f"{percent(share)} of the profiled time",
        "Run the model a few times before the profiled steps: schedule(wait=1, warmup=3, active=3)",
        {"compile_us": us, "share_percent": share},
        saves_us=us,
        by=None if again else context.best("compile"),
        code="schedule(wait=1, warmup=3, active=3)",
    )


def _autotune_in_steps(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report tuning kernels when they first run; tuning while compiling counts as compiling."""
    trace, compiling = context.profile.trace, context.profile.of(compiling_in_trace)
    tuning = busy(trace, host_slices(trace, is_autotuning, (*CALL_CATS, PYTHON_FUNCTION)))
    in_compiling = covered_ns(compiling, tuning.starts, tuning.starts + 1) > 0
    counted_twice = Intervals(tuning.starts[in_compiling], tuning.ends[in_compiling])
    us = context.inside_us(tuning) - context.inside_us(counted_twice)
    share = context.share(us)
    if share < thresholds.autotune_percent:
        return
    yield rule.finding(
        context,
        f"Autotuning kernels took {duration(us)}, {percent(share)} of the profiled time",
        "Run every shape once before the profiled steps; the choices are kept in inductor's cache",
        {"autotune_us": us, "share_percent": share},
        saves_us=us,
    )


def _names_disabled(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report generated kernels that all have the same name."""
    trace, rows = context.profile.trace, context.profile.of(gpu_work).index
    rows = rows[mask_of(trace.names, is_anonymous)[trace.name[rows]]]
    share = context.gpu_share(float(trace.dur[rows].sum()) / 1000)
    if share < thresholds.unnamed_percent:
        return
    yield rule.finding(
        context,
        f"Kernels without names of their own take {percent(share)} of the GPU time",
        "Let inductor name its kernels: TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1 (the default since torch 2.6)",
        {"launches": len(rows), "gpu_share_percent": share},
        severity="warning",
        code="TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1",
    )


def _unnamed_cpu_kernels(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report compiled code on the CPU that takes most of a step, and whose kernels have no names."""
    share = _part_percent(context.profile, "compiled_graph")
    if share < thresholds.unexplained_percent:
        return
    yield rule.finding(
        context,
        f"Compiled code takes {percent(share)} of a step, and its kernels are not named",
        "Set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 before compiling, and record again: each generated kernel is "
        "then an event",
        {"share_percent": share},
        severity="info",
        code="TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1",
    )


def _large_sites(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report the sites that take much of a step, and that no other finding explains; so this rule is the last one."""
    sites = [
        site for site in context.profile.of(ledger).sites if site.site and _is_unexplained(context, site)
    ]
    for site in sites[:_MAX_SITES]:
        kind = site.kinds[0]
        # A step needs its kernels, but not that the host is late with them.
        is_work = site.gpu_us > site.host_us or kind == "compiled_graph"
        named = [
            name for row in context.profile.of(ledger).rows if row.site == site.site for name in row.names
        ]
        inside = next((name for name in named if short_kernel(name) not in site.site), "")
        is_position = site.site.startswith(("after ", "before "))
        title = f"Time {site.site}" if is_position else site.site
        what = f"{'mostly ' if site.kinds[1:] else ''}{KIND_WORDS.get(kind, f'{kind} kernels')}"
        yield rule.finding(
            context,
            f"{title} takes {duration(site.time_us)}, {percent(site.step_percent)} of "
            f"{'the step' if context.steps else 'the span'}: {what}"
            f"{f', such as {short_kernel(inside)}' if inside else ''}",
            _next_step(context, site, is_work),
            {"site_us": site.time_us, "share_percent": site.step_percent},
            severity="info" if is_work and not _is_dense_update(context, site) else "warning",
            where=[site.site],
        )


def _is_unexplained(context: SpanContext, site: LedgerSite) -> bool:
    """Whether no other finding names a site, or brings as much as the larger part of what it may bring.

    Less time of the host makes a step shorter only as far as its GPU idles.
    """
    used, most_percent = context.profile.of(utilization), site.step_percent
    if used and site.host_us > site.gpu_us and used.mean.busy_percent is not None:
        most_percent = min(most_percent, 100 - used.mean.busy_percent)
    is_explained = any(
        site.site in row.where
        or (row.predicted is not None and row.predicted.gain_percent >= _EXPLAINED * most_percent)
        for row in context.found
    )
    return most_percent >= thresholds.site_percent and not is_explained


def _is_dense_update(context: SpanContext, site: LedgerSite) -> bool:
    """Whether an optimizer's kernels are the site, and the program computes the dense gradient of an embedding."""
    return is_foreach(site.site) and any(map(is_embedding_backward, context.profile.trace.names))


def _next_step(context: SpanContext, site: LedgerSite, is_work: bool) -> str:
    kind = site.kinds[0]
    if _is_dense_update(context, site):
        return (
            "An embedding has a dense gradient, so the optimizer goes over all of its rows: if a step looks up few of "
            "them, nn.Embedding(sparse=True) with an optimizer that takes sparse gradients. record_shapes=True shows it"
        )
    if kind == "kernel_launches":
        return (
            'Launch less often: CUDA graphs (mode="reduce-overhead"), which need the same shapes and memory in each '
            "step, such as a static cache; or a larger batch"
        )
    if is_work:
        return (
            "Kernels shows how near they are to what the device can do; other shapes or types may need less"
        )
    if site.file:
        return "Take it out of the step: compute it once before the loop, in the data loader's workers, or on the GPU"
    known = context.summary and context.summary.environment.HasField("compile_called")
    may_compile = site.site.endswith(LOOKUPS) and not known  # what is right before a compiled call
    example = ", such as torch.compile called in each step" if may_compile else ""
    return f"Record with with_stack=True to see the lines: it is Python code{example}, or waiting for something else"


def _part_percent(profile: Profile, *parts: Part) -> float:
    """Return how much of the mean step on the CPU these parts are."""
    rows = profile.of(step_breakdown).mean_parts
    return sum(row.percent for row in rows if row.kind == "host" and row.part in parts)


def _cuda_graphs_old_driver(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report an old driver: kernels of graphs made before the profiler first ran are missing, or crash it."""
    header = context.profile.trace.metadata
    driver, runtime = header.get("cuda_driver_version"), header.get("cuda_runtime_version")
    if not _is_old(driver) and not _is_old(runtime):
        return
    yield rule.finding(
        context,
        f"CUDA graphs are profiled with CUDA {runtime} and driver {driver}, older than {thresholds.driver_least}: "
        "their kernels may be missing",
        "Call torch.profiler._utils._init_for_cuda_graphs() before the graphs are captured, or update the driver",
        {"replays": int(context.profile.of(launch_calls).replay.sum())},
        severity="critical",
        code="torch.profiler._utils._init_for_cuda_graphs()",
    )


def _is_old(version: object) -> bool:
    """Whether a version is old: of CUDA as the header writes it (12020), or of the driver (525.85.12)."""
    if isinstance(version, int):
        return 0 < version < thresholds.cuda_least
    if not (isinstance(version, str) and _VERSION.match(version)):
        return False
    numbers = [int(number) for number in version.split(".")]
    limit = [int(number) for number in thresholds.driver_least.split(".")]
    return numbers < (limit if numbers[0] >= 100 else [thresholds.cuda_least // 1000])


def _empty_profile(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report a trace without events, without GPU events, or with too few steps."""
    trace = context.profile.trace
    if trace.is_cut_off:
        return
    if not len(trace):
        yield rule.finding(
            context,
            "The trace holds 0 events: the profiler was not active",
            "Let the schedule come to its active steps: call prof.step() at the end of each step, often enough",
            {"events": 0},
            severity="critical",
        )
    elif trace.is_lossy:
        return
    elif trace.metadata.get("deviceProperties") and not len(context.profile.of(gpu_work).index):
        yield rule.finding(
            context,
            "The trace holds 0 GPU events, though there is a GPU",
            "Record them: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]; and run something on it",
            {"gpu_events": 0, "events": trace.events},
            severity="warning",
            code="activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    elif 0 < context.steps < thresholds.steps_least:
        yield rule.finding(
            context,
            f"Only {plural(context.steps, 'step')} was profiled: nothing tells a typical step from an outlier",
            "Profile a few steps: schedule(wait=1, warmup=3, active=3)",
            {"steps": context.steps},
            severity="info",
            code="schedule(wait=1, warmup=3, active=3)",
        )


def _exposed_communication(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report communication that nothing overlaps."""
    used = context.profile.of(utilization)
    us = used.verdict.communication_us if used else 0.0
    share = context.share(us)
    if share < thresholds.communication_percent:
        return
    yield rule.finding(
        context,
        f"Communication that nothing overlaps takes {duration(us / context.step_count)} {context.where}, "
        f"{percent(share)} of the profiled time",
        "Let it overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; and compare ranks, "
        "for waiting for a slower one looks the same",
        {"communication_us_per_step": us / context.step_count, "share_percent": share},
        saves_us=us,
        by=context.best("communication"),
    )


def _slow_kernel(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report a generated kernel that mostly moves data, slowly; matrix products are bound by arithmetic instead."""
    for row in context.profile.of(kernel_table).rows:
        share, bandwidth = context.gpu_share(row.time_us), row.bandwidth_percent
        if row.category not in DATA_MOVING_CATEGORIES or share < thresholds.kernel_percent:
            continue
        if bandwidth is None or bandwidth >= thresholds.kernel_bandwidth_percent:
            continue
        yield rule.finding(
            context,
            f"{short_kernel(row.name)} takes {percent(share)} of the GPU time at {percent(bandwidth)} of the "
            "memory bandwidth",
            'Tune it: torch.compile(model, mode="max-autotune"), or larger tensors; '
            f"{_where_shown(row.name)} shows its source and launches",
            {"gpu_share_percent": share, "bandwidth_percent": bandwidth, "gpu_us": row.time_us},
            by=context.best("roofline", row.name),
            code='torch.compile(model, mode="max-autotune")',
            saves_us=(row.alone_us or row.time_us) * (1 - bandwidth / 100),
            row=f"kernels:{row.key}",
        )


def _cuda_graphs_used(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report launches that are left where CUDA graphs are in use."""
    profile, calls = context.profile, context.profile.of(launch_calls)
    if not profile.of(graph_runs).replayed.any() and profile.of(requested_graphs):
        return  # each was launched where it was recorded, and never again: another rule says why
    counts = [calls.between(begin, end) for begin, end in zip(*context.windows)]
    replays, launches = sum(row.replays for row in counts), sum(row.launches for row in counts)
    if not replays or launches == replays:
        return
    steps = context.step_count
    yield rule.finding(
        context,
        f"CUDA graphs are replayed {often(replays / steps)} {context.where}, and "
        f"{plural_of_mean((launches - replays) / steps, 'launch is', 'launches are')} still made one by one",
        "What launches them runs eager, or torch skipped CUDA graphs for it: compile it, too",
        {
            "replays_per_step": replays / steps,
            "launches_per_step": (launches - replays) / steps,
            "launch_call_us_per_step": sum(row.time_ns for row in counts) / 1000 / context.step_count,
        },
        severity="info",
    )


def _dominant_kernel(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report a kernel of the user's that takes most of the GPU time, of which the data that it moves is unknown."""
    profile = context.profile
    lane, queue = profile.of(launch_sequence), profile.of(gpu_queue)
    if not len(lane):
        return
    clock = profile.of(recorded_clock)
    busy_ns = queue.dur[queue.device == clock.device].sum() / lane.steps
    if busy_ns < thresholds.gpu_busy_percent / 100 * clock.step:
        return
    row = max(profile.of(kernel_table).rows, key=lambda row: row.time_us, default=None)
    share = context.gpu_share(row.time_us) if row else 0.0
    if row is None or share < thresholds.dominant_percent:
        return
    if row.bandwidth_percent is not None or row.category in _NOT_WRITTEN or _is_torchs(profile, row.name):
        return
    yield rule.finding(
        context,
        f"{short_kernel(row.name)} takes {percent(share)} of the GPU's time, and the GPU sets the pace of a step",
        "Look at how it reads and writes: neighbouring threads, neighbouring numbers; enough blocks for the whole "
        f"GPU. {_where_shown(row.name)} shows its launches",
        {"gpu_share_percent": share, "gpu_us": row.time_us, "launches": row.launches},
        severity="warning",
        row=f"kernels:{row.key}",
        where=[short_kernel(row.name)],
    )


def _is_torchs(profile: Profile, kernel: str) -> bool:
    """Whether only torch's own operators launch it: the user cannot change how it reads and writes."""
    trace = profile.trace
    rows = profile.of(launching_operators)[work_named(profile, kernel.__eq__)]
    return bool(len(rows) and (rows >= 0).all()) and all(
        is_library_operator(trace.names[name]) for name in np.unique(trace.name[rows]).tolist()
    )


def _where_shown(kernel: str) -> str:
    """Return where more about it is shown: names of C++ kernels cannot be typed."""
    return f"tb-torchcompile kernel LOGDIR {kernel}" if kernel.isidentifier() else "Its row in Kernels"


def _memory_limit(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report memory that the caching allocator holds nearly all of: it is what fails to grow."""
    for device in context.profile.of(held_memory):
        held, capacity, share = device.held, device.capacity, device.share_percent
        if held is None or capacity is None or share is None or share < thresholds.memory_percent:
            continue
        yield rule.finding(
            context,
            device.sentence(),
            "Keep less alive: activation checkpointing (torch.utils.checkpoint), torch.autocast, a smaller batch",
            {"held_bytes": held, "capacity_bytes": capacity, "share_percent": share},
            severity="warning",
        )


def _data_parallel(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report one process that drives several GPUs."""
    devices = len(np.unique(context.profile.of(gpu_work).device))
    if devices > 1:
        yield rule.finding(
            context,
            f"One process drives {plural(devices, 'GPU')} through DataParallel, which copies the model each time",
            "Use torch.nn.parallel.DistributedDataParallel: a process for each GPU, started by torchrun",
            {"devices": devices},
            severity="warning",
        )


def _slow_backend(rule: Rule[SpanContext], context: SpanContext) -> Iterator[Finding]:
    """Report ranks with GPUs that communicate through the host."""
    if not len(context.profile.of(gpu_work).index):
        return
    info = context.profile.trace.distributed
    backend, size = str(info.get("backend", "")), info.get("world_size")
    if not backend or any(name in backend for name in GPU_BACKENDS):
        return
    if isinstance(size, int) and size > 1:
        yield rule.finding(
            context,
            f"{size} ranks with GPUs communicate through {backend}, by way of the host",
            'Use the GPUs\' own: torch.distributed.init_process_group("nccl")',
            {"ranks": size},
            severity="warning",
            code='torch.distributed.init_process_group("nccl")',
        )


def _has(matches: Callable[[str], bool]) -> Callable[[SpanContext], bool]:
    """Return the condition that a span has a slice or kernel with such a name."""
    return lambda context: any(map(matches, context.profile.trace.names))


RUN_RULES = (
    Rule("graph_breaks", "graph_breaks", _graph_breaks),
    Rule("recompiles", "recompiles", _recompiles, lambda context: bool(context.recompilations)),
    Rule("compile_in_steps", "compile_time", _compile_in_steps),
    Rule("autotune_in_steps", "compile_time", _autotune_in_steps, _has(is_autotuning)),
    Rule("communication", "gpu_utilization", _exposed_communication),
    Rule("cuda_graphs_used", "cuda_graphs", _cuda_graphs_used, lambda context: context.replays_graphs),
    Rule(
        "kernel_low_bandwidth",
        "kernels",
        _slow_kernel,
        lambda context: has_dominant_kernel(context.profile, thresholds.kernel_percent),
    ),
    Rule("dominant_kernel", "kernels", _dominant_kernel),
    Rule("memory_limit", "memory", _memory_limit),
    Rule("data_parallel", "gpu_utilization", _data_parallel, _has(DATA_PARALLEL.__eq__)),
    Rule(
        "slow_backend",
        "gpu_utilization",
        _slow_backend,
        lambda context: bool(context.profile.trace.distributed),
    ),
    Rule("names_disabled", "kernels", _names_disabled, _has(is_anonymous)),
    Rule(
        "unnamed_cpu_kernels",
        "cpu",
        _unnamed_cpu_kernels,
        lambda context: bool(context.profile.of(unnamed_cpu_kernels)),
    ),
    Rule(
        "cudagraphs_old_driver",
        "gpu_utilization",
        _cuda_graphs_old_driver,
        lambda context: context.replays_graphs,
    ),
    Rule("empty_profile", "overview", _empty_profile),
)
LARGE_SITE_RULE: Rule[SpanContext] = Rule(
    "large_site", "step_breakdown", _large_sites, lambda context: context.whole
)
