"""What took the time from the start of a process to its first steady step, and what does a warm start save of it?"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile import cache_lookups, startup_parts
from tb_torchcompile_plugin.analysis.compile.cache_keys import compared_lookups, differences, differing_keys
from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup
from tb_torchcompile_plugin.analysis.compile.compile_time import compile_cost
from tb_torchcompile_plugin.analysis.compile.starts import (
    FrameVersion,
    Start,
    StartRow,
    Starts,
    common_frame_times,
    have_same_keys,
    lookups_by_id,
    start_rows,
    versioned_frames,
)
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    duration,
    joined_names,
    listed_numbers,
    percent,
    plural,
    seconds,
    size,
)
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer
from tb_torchcompile_plugin.profile.intervals import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import caches as names

RULE = "cold_start"
_MIN_SHARE_PERCENT = 5.0  # smaller parts stay out of the first sentence
_NO_COMPILATION = "No compilation with a time was recorded: nothing says how this process started"
_NO_PROCESS_START = (
    "When the process began is not known: this counts from {}. The handler notes it on Linux, "
    "a TORCH_TRACE log does not."
)
_NO_STEP = (
    "No first steady step was noted, so this ends with the last compilation. profiler.step() or an optimizer of torch "
    "tells where steps end."
)
_SHARE = (
    "Compile once and share it: save_cache_artifacts on one rank, load_cache_artifacts on the others before they "
    "compile"
)
_NEXT_STEP = (
    "Give every process of the job the same TORCHINDUCTOR_CACHE_DIR, and keep the settings and code that are part "
    "of the key the same; or hand the entries on: torch.compiler.save_cache_artifacts, load_cache_artifacts"
)


class StartUp(msgspec.Struct, frozen=True):
    """A start-up: its parts, which sum to it; others of the logdir; and each cache lookup."""

    sentences: tuple[str, ...]
    parts: Annotated[tuple[startup_parts.StartPart, ...], column_head("Until the first steady step")]
    starts: Annotated[tuple[StartRow, ...], column_head("Compared with others")]
    start_lookups: Annotated[tuple[CacheLookup, ...], column_head("Cache lookups")]


def startup(starts: Starts) -> StartUp:
    """Describe the start-up of the process in view; without compilations only a sentence says so."""
    data, rows = starts.own.data, starts.of(start_rows)
    return StartUp(
        sentences=tuple(_sentences(starts)),
        parts=data.of(startup_parts.start_parts),
        starts=tuple(row for row in rows if row.common or row.run == starts.own.run),
        start_lookups=starts.of(compared_lookups),
    )


def start_findings(starts: Starts) -> list[Finding]:
    """Return a finding where another process of the logdir shows the cause of a miss. A first run has none."""
    data = starts.own.data
    avoidable = {lookup_id: row for lookup_id, row in starts.of(differences).items() if row.avoidable}
    saved_ns = data.of(cache_lookups.would_save_ns)
    if not avoidable or saved_ns is None or to_seconds(saved_ns) < thresholds.cold_start_s:
        return []
    lookup_id, difference = min(avoidable.items(), key=lambda pair: not pair[1].same_run)
    whole_ns = sum(data.of(startup_parts.parts_ns).values())
    return [
        Finding(
            rule=RULE,
            # What differs between runs may be meant to.
            severity="warning" if difference.same_run else "info",
            title=(
                f"A warm start would have skipped up to {duration(saved_ns / 1000)} of the "
                f"{duration(whole_ns / 1000)} of this start-up. The caches missed, against {difference.than}: "
                f"{difference.what}"
            ),
            evidence={
                "would_save_s": to_seconds(saved_ns),
                "start_up_s": to_seconds(whole_ns),
                "missed_lookups": len(avoidable),
            },
            saves_us=None,
            panel="compile_time",
            row=None,
            next_step=_NEXT_STEP,
            where=[at_line(lookup_id.file, lookup_id.line)] if lookup_id.file else [],
        )
    ]


def _sentences(starts: Starts) -> Iterator[str]:
    data = starts.own.data
    start = data.of(startup_parts.window)
    if start is None:
        yield _NO_COMPILATION
        return
    yield _headline(data, until_step=start.until_step)
    yield from _missed(starts)
    yield from _measured(starts)
    yield from _settings(data)
    yield from _compiled_by_each_rank(starts)
    yield from map(_transferred, data.summary.cache_transfers)
    if not start.from_process:
        imported = "when tb_torchcompile_plugin was imported"
        yield _NO_PROCESS_START.format(imported if start.imported_ns else "the first compilation")
    if not start.until_step:
        yield _NO_STEP


def _headline(data: CompileData, *, until_step: bool) -> str:
    """Summarize: "39.2 s until the first steady step, 79.8 % of it compiling: 26.0 s kernels, 4.35 s Inductor"."""
    whole = sum(data.of(startup_parts.parts_ns).values())
    parts = sorted(data.of(startup_parts.start_parts), key=lambda part: -part.time_s)
    compiling = [part for part in parts if part.title.startswith("Compiling: ")]
    others = [part for part in parts if part not in compiling and part.percent >= _MIN_SHARE_PERCENT]
    longest = [f"{seconds(part.time_s)} {part.title.removeprefix('Compiling: ')}" for part in compiling[:2]]
    rest = [f"{seconds(part.time_s)}: {part.title[:1].lower()}{part.title[1:]}" for part in others]
    share = percent(100 * data.of(startup_parts.compile_ns) / whole) if whole else "nothing"
    until = "until the first steady step" if until_step else "until the last compilation"
    first = f"{duration(whole / 1000)} {until}, {share} of it compiling: {joined_names(longest)}"
    return "; ".join((first, *rest)) + "."


def _missed(starts: Starts) -> Iterator[str]:
    data = starts.own.data
    rows = [row for row in data.of(cache_lookups.cache_lookups) if row.graph is not None]
    missed = sum(row.result == "miss" for row in rows)
    would_save = data.of(cache_lookups.would_save_ns)
    if missed and would_save:
        yield (
            f"{missed} of {plural(len(rows), 'lookup')} in the compile caches missed: hits would have skipped "
            f"up to {duration(would_save / 1000)} of work, which is what torch counts as saved once they hit."
        )
    cause = next((row for row in starts.of(differences).values() if row.avoidable), None)
    if cause:
        yield f"First miss that another process of this logdir sheds light on, against {cause.than}: {cause.what}."
    for reason in dict.fromkeys(row.why for row in rows if row.result == "bypass"):
        yield f"A cache was bypassed. {reason}."


def _measured(starts: Starts) -> Iterator[str]:
    """Compare a cold with a warm start that has the same keys: not at the same time, and the nearest in time."""
    own, rows = starts.own, starts.of(start_rows)
    is_warm = rows[0].kind == "warm"
    candidates = [
        (start, own) if is_warm else (own, start)
        for row, start in zip(rows[1:], starts.others)
        if {row.kind, rows[0].kind} == {"cold", "warm"} and have_same_keys(own.data, start.data)
    ]
    if not candidates:
        return
    cold, warm = min(candidates, key=lambda pair: _distance(*pair))
    other = cold if is_warm else warm
    common = common_frame_times(cold.data, warm.data)
    cold_ns, warm_ns = sum(ns for ns, _ in common), sum(ns for _, ns in common)
    cost = warm.data.of(compile_cost)
    count = f" torch's hits count {seconds(cost.saved_s)}." if cost and cost.saved_s is not None else ""
    times = f"{duration(cold_ns / 1000)} cold and {duration(warm_ns / 1000)} warm"
    what = f"Measured against {other.name}: what both compiled took {times}"
    if cold_ns <= warm_ns:
        yield f"{what}. The hits spared nothing: what they load was compiled again, or loading it took as long.{count}"
        return
    saves = "the warm start saved" if is_warm else "a warm start saves"
    yield f"{what}, so {saves} {duration((cold_ns - warm_ns) / 1000)}.{count}"


def _distance(cold: Start, warm: Start) -> tuple[bool, int]:
    """Return whether the cold one had not ended when the warm one began, and how many ns apart they began."""
    before, after = cold.data.summary.environment, warm.data.summary.environment
    overlaps = after.recording_start_ns < before.written_ns
    return overlaps, abs(after.recording_start_ns - before.recording_start_ns)


def _settings(data: CompileData) -> Iterator[str]:
    settings = data.summary.environment.settings
    for name, text in names.IS_OFF.items():
        # `force_disable_caches` matters when it is on, the others when they are off.
        if names.is_setting_on(settings, name) is ("disable" in name):
            yield text


def _compiled_by_each_rank(starts: Starts) -> Iterator[str]:
    """Say what to do where the ranks of the run in view missed for the same frames."""
    in_run = [start for start in (starts.own, *starts.others) if start.run == starts.own.run]
    pairs = ((start.rank, start) for start in in_run if start.rank is not None)
    ranked = sorted(pairs, key=lambda pair: pair[0])
    if len(ranked) < 2:
        return
    missed = [start.data.of(missed_frames) for _, start in ranked]
    frames = set.intersection(*(set(times) for times in missed))
    slowest = max(sum(times[frame] for frame in frames) for times in missed)
    if slowest:
        numbers = listed_numbers([rank for rank, _ in ranked])
        yield (
            f"Ranks {numbers} each compiled the same {plural(len(frames), 'frame')}, "
            f"which took the slowest {duration(slowest / 1000)}. {_sharing([start for _, start in ranked], frames)}."
        )


def missed_frames(data: CompileData) -> dict[FrameVersion, int]:
    """Map each frame with a miss to the time (ns) that its misses took."""
    misses = data.of(cache_lookups.misses_ns)
    return {
        frame: sum(ns or 0 for ns in misses[key_of(row.key)])
        for frame, row in data.of(versioned_frames).items()
        if key_of(row.key) in misses
    }


def _sharing(ranks: list[Start], frames: set[FrameVersion]) -> str:
    keys = defaultdict[object, set[str]](set)
    for start in ranks:
        for lookup_id, lookup in start.data.of(lookups_by_id).items():
            if lookup_id[:4] in frames:
                keys[lookup_id].add(lookup.cache_key)
    if max(map(len, keys.values()), default=0) == 1:
        return f"Their keys are the same. {_SHARE}"
    settings = ranks[0].data.summary.environment.settings
    what = next(filter(None, (differing_keys(ranks[0].data, start.data) for start in ranks[1:])), "")
    parts = f" in {what.partition('  #')[0]}" if what else ""
    differ = f"Their keys differ{parts}, so that none can use what another one compiled"
    name = next((name for name in names.COMPILE_ON_ONE_RANK if name in settings), None)
    if name and not names.is_setting_on(settings, *names.COMPILE_ON_ONE_RANK):
        return f"{differ}; compile_on_one_rank takes the rank out of graphs ({name} = True)"
    return differ


def _transferred(row: CacheTransfer) -> str:
    entries = f"{plural(sum(row.entries.values()), 'entry', 'entries')} of the caches"
    transferred = f", {size(row.size)}," if row.HasField("size") else ""
    verb = "loaded" if row.load else "saved"
    function = f"torch.compiler.{verb[:4]}_cache_artifacts"
    return f"The program {verb} {entries}{transferred} in {duration(row.duration_ns / 1000)} ({function})."
