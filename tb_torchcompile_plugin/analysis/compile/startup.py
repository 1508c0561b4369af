"""From the start of a process to its first steady step: what took the time, and what a warm start saves of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile.cache_lookups import (
    Frame,
    Start,
    StartLookup,
    StartRow,
    Starts,
    frames_of,
    have_same_keys,
    looked_up,
    misses_ns,
    places_of,
    shared,
    start_lookups,
    start_rows,
    would_save_ns,
)
from tb_torchcompile_plugin.analysis.compile.cache_misses import differences
from tb_torchcompile_plugin.analysis.compile.caches import time_saved_s
from tb_torchcompile_plugin.analysis.compile.startup_parts import (
    StartPart,
    compile_ns,
    parts_ns,
    start_parts,
    window,
)
from tb_torchcompile_plugin.analysis.compile.startup_tree import CompiledLine, compiled_lines
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    both,
    duration,
    listed,
    percent,
    plural,
    seconds,
    size,
)
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import (
    CACHING_PRECOMPILE,
    COMPILE_ON_ONE_RANK,
    IS_OFF,
    is_on,
    offers,
)

# Ranks that each compile the same: what sharing it would save, and what this torch offers for that.


_SHARE = (
    "Compile once and share it: save_cache_artifacts on one rank, load_cache_artifacts on the others before they "
    "compile"
)


def one_rank_says(starts: Starts) -> Iterator[str]:
    """What is switched on or off; and where ranks of the run in view missed for the same frames, what to do."""
    mine = starts.mine.data
    yield from _settings(mine)
    ranks = sorted(
        (one for one in (starts.mine, *starts.others) if one.run == starts.mine.run and one.rank is not None),
        key=lambda one: one.rank or 0,
    )
    missed = {one: one.data.of(missed_frames) for one in ranks}
    frames = set.intersection(*(set(rows) for rows in missed.values())) if len(ranks) > 1 else set()
    spent = sorted(sum(missed[one][frame] for frame in frames) for one in ranks)
    if not frames or not spent[-1]:
        return
    what = (
        f"Ranks {listed([one.rank or 0 for one in ranks])} each compiled the same {plural(len(frames), 'frame')}, "
        f"which took the slowest {duration(spent[-1] / 1000)}"
    )
    yield f"{what}. {_advice(ranks, frames)}."


def _settings(data: CompileData) -> Iterator[str]:
    settings = data.summary.environment.settings
    yield from (text for name, text in IS_OFF.items() if is_on(settings, name) is _is_bad_when_on(name))
    if is_on(settings, *COMPILE_ON_ONE_RANK):
        yield "compile_on_one_rank is on: graphs do not depend on the rank that compiled them."
    if is_on(settings, *CACHING_PRECOMPILE):
        yield "caching_precompile is on: what Dynamo made is kept, too."


def _is_bad_when_on(name: str) -> bool:
    """Whether a setting is worth a word when it is on, as `force_disable_caches`, or when it is off."""
    return "disable" in name


def _advice(ranks: list[Start], frames: set[Frame]) -> str:
    settings = ranks[0].data.summary.environment.settings
    if _keys(ranks, frames) == 1:
        return f"Their keys are the same. {_SHARE}"
    if offers(settings, *COMPILE_ON_ONE_RANK) and not is_on(settings, *COMPILE_ON_ONE_RANK):
        return (
            "Their keys differ, so that none can use what another one compiled; compile_on_one_rank takes the "
            f"rank out of graphs ({next(name for name in COMPILE_ON_ONE_RANK if name in settings)} = True)"
        )
    return "Their keys differ, so that none can use what another one compiled"


def _keys(ranks: list[Start], frames: set[Frame]) -> int:
    """The most keys that one lookup has among ranks."""
    keys: dict[object, set[str]] = {}
    for one in ranks:
        rows = one.data.of(looked_up)
        for place, number in one.data.of(places_of).items():
            if place[:4] in frames:
                keys.setdefault(place, set()).add(rows[number][0].key)
    return max(map(len, keys.values()), default=0)


def missed_frames(data: CompileData) -> dict[Frame, int]:
    """Frame → ns that its misses took; of frames of which a lookup missed."""
    misses = data.of(misses_ns)
    return {
        frame: sum(ns or 0 for ns in misses[row.key.epoch, row.key.compile_id])
        for frame, row in data.of(frames_of).items()
        if (row.key.epoch, row.key.compile_id) in misses
    }


# Where a warm start was there to be had, and was missed: what to change so that the caches hit.


RULE = "cold_start"
_NEXT = (
    "Give every process of the job the same TORCHINDUCTOR_CACHE_DIR, and keep the settings and code that are part "
    "of the key the same; or hand the entries on: torch.compiler.save_cache_artifacts, load_cache_artifacts"
)


def start_findings(starts: Starts) -> list[Finding]:
    """One, where a miss has a cause that another process of the logdir shows. A first run has none."""
    data = starts.mine.data
    avoidable = {place: one for place, one in starts.of(differences).items() if one.avoidable}
    saved_ns = data.of(would_save_ns)
    if not avoidable or saved_ns is None or to_seconds(saved_ns) < thresholds.cold_start_s:
        return []
    place, one = min(avoidable.items(), key=lambda pair: not pair[1].same_run)
    whole_ns, lookup = sum(data.of(parts_ns).values()), data.of(looked_up)[place][0]
    frame = forward_compilations(data.summary).get((lookup.epoch, lookup.compile_id))
    return [
        Finding(
            rule=RULE,
            severity="warning" if one.same_run else "info",  # what differs between runs may be meant to
            title=(
                f"A warm start would have skipped up to {duration(saved_ns / 1000)} of the "
                f"{duration(whole_ns / 1000)} of this start-up. The caches missed, against {one.than}: {one.what}"
            ),
            evidence={
                "would_save_s": to_seconds(saved_ns),
                "start_up_s": to_seconds(whole_ns),
                "missed_lookups": len(avoidable),
            },
            saves_us=None,
            panel="startup",
            row=None,
            next_step=_NEXT,
            where=[at_line(frame.file, frame.line)] if frame and frame.file else [],
        )
    ]


_NOTHING = "No compilation with a time was recorded: nothing says how this process started"
_MATTERS_PERCENT = 5.0
_UNSAID = (
    "When the process began is not known: this counts from {}. The handler notes it on Linux, "
    "a TORCH_TRACE log does not."
)
_NO_STEP = (
    "No first steady step was noted, so this ends with the last compilation. profiler.step() or an optimizer of torch "
    "tells where steps end."
)


class StartUp(msgspec.Struct, frozen=True):
    """A start-up: its parts, which sum to it; beside it others of the logdir; each lookup; and the program's lines."""

    says: tuple[str, ...]
    parts: Annotated[tuple[StartPart, ...], head("Until the first steady step")]
    starts: Annotated[tuple[StartRow, ...], head("Beside others")]
    start_lookups: Annotated[tuple[StartLookup, ...], head("Cache lookups")]
    compiled_lines: Annotated[tuple[CompiledLine, ...], head("Compile time by line")]


def startup(starts: Starts) -> StartUp:
    """Of the process in view; without compilations it only says so."""
    data = starts.mine.data
    return StartUp(
        says=tuple(_says(starts)),
        parts=data.of(start_parts),
        starts=tuple(row for row in starts.of(start_rows) if row.common or row.run == starts.mine.run),
        start_lookups=starts.of(lookups_beside),
        compiled_lines=starts.of(compiled_lines),
    )


def lookups_beside(starts: Starts) -> tuple[StartLookup, ...]:
    """Each with how its key differs from that of another process."""
    known = starts.of(differences)
    rows = starts.mine.data.of(start_lookups)
    return tuple(
        msgspec.structs.replace(row, differs=known[place].what, than=known[place].than)
        if place in known
        else row
        for place, row in enumerate(rows)
    )


# -- in words -----------------------------------------------------------------------------------------------------


def _says(starts: Starts) -> Iterator[str]:
    data = starts.mine.data
    around = data.of(window)
    if around is None:
        yield _NOTHING
        return
    yield _headline(starts.mine)
    yield from _caches(starts)
    yield from _measured(starts)
    yield from _alone(starts)
    yield from one_rank_says(starts)
    yield from map(_transferred, data.summary.cache_transfers)
    if not around.from_process:
        yield _UNSAID.format(
            "when tb_torchcompile_plugin was imported" if around.imported_ns else "the first compilation"
        )
    if not around.until_step:
        yield _NO_STEP


def _headline(mine: Start) -> str:
    """ "39.2 s until the first steady step, 79.8 % of it compiling: 26.0 s kernels (Triton, C++), 4.35 s Inductor"."""
    whole = sum(mine.data.of(parts_ns).values())
    parts = sorted(mine.data.of(start_parts), key=lambda part: -part.time_s)
    compiling = [part for part in parts if part.title.startswith("Compiling: ")]
    others = [part for part in parts if part not in compiling and part.percent >= _MATTERS_PERCENT]
    most = [f"{seconds(part.time_s)} {part.title.removeprefix('Compiling: ')}" for part in compiling[:2]]
    rest = [f"{seconds(part.time_s)}: {part.title[:1].lower()}{part.title[1:]}" for part in others]
    share = percent(100 * mine.data.of(compile_ns) / whole) if whole else "nothing"
    until = "until the first steady step" if _until_step(mine) else "until the last compilation"
    return (
        "; ".join((f"{duration(whole / 1000)} {until}, {share} of it compiling: {both(most)}", *rest)) + "."
    )


def _until_step(mine: Start) -> bool:
    around = mine.data.of(window)
    return around is not None and around.until_step


def _caches(starts: Starts) -> Iterator[str]:
    data = starts.mine.data
    rows = [row for row in data.of(start_lookups) if row.graph is not None]
    missed = [row for row in rows if row.result == "miss"]
    predicted = data.of(would_save_ns)
    if missed and predicted:
        yield (
            f"{len(missed)} of {plural(len(rows), 'lookup')} in the compile caches missed: hits would have skipped "
            f"up to {duration(predicted / 1000)} of work, which is what torch counts as saved once they hit."
        )
    if cause := first_cause(starts):
        yield f"First miss that another process of this logdir sheds light on, against {cause[1]}: {cause[0]}."
    for reason in dict.fromkeys(row.why for row in rows if row.result == "bypass"):
        yield f"A cache was bypassed. {reason}."


def first_cause(starts: Starts) -> tuple[str, str] | None:
    """What differs, and from which process; None where no other one had an entry by then."""
    return next(((one.what, one.than) for one in starts.of(differences).values() if one.avoidable), None)


def _measured(starts: Starts) -> Iterator[str]:
    """A cold and a warm start side by side, whose keys are the same: not at once, and near in time."""
    kind = next(iter(starts.of(start_rows))).kind
    if kind not in ("cold", "warm"):
        return
    others = [
        one
        for row, one in zip(starts.of(start_rows)[1:], starts.others)
        if {row.kind, kind} == {"cold", "warm"} and have_same_keys(starts.mine.data, one.data)
    ]
    if not others:
        return
    here = kind == "warm"
    other = min(others, key=lambda one: _apart(*((starts.mine, one) if here else (one, starts.mine))))
    times = [sum(ns) for ns in zip(*shared(starts.mine.data, other.data))]
    hits = (starts.mine if here else other).data.of(time_saved_s)
    yield _saved((times[here], times[not here]), here, other, hits)


def _apart(warm: Start, cold: Start) -> tuple[bool, int]:
    """Whether the cold one had not ended when the warm one began, and by how many ns they began apart."""
    first, then = (one.data.summary.environment for one in (cold, warm))
    apart = then.recording_start_ns - first.recording_start_ns
    return then.recording_start_ns < first.written_ns, abs(apart)


def _saved(times_ns: tuple[int, int], here: bool, other: Start, counted_s: float | None) -> str:
    cold, warm = (duration(ns / 1000) for ns in times_ns)
    gone = times_ns[0] - times_ns[1]
    count = "" if counted_s is None else f" torch's hits count {seconds(counted_s)}."
    what = f"Measured against {other.name}: what both compiled took {cold} cold and {warm} warm"
    if gone <= 0:
        return f"{what}. The hits spared nothing: what they load was compiled again, or loading it took as long.{count}"
    saves = "the warm start saved" if here else "a warm start saves"
    return f"{what}, so {saves} {duration(gone / 1000)}.{count}"


def _alone(starts: Starts) -> Iterator[str]:
    """Ranks of this run that missed where others hit."""
    ranks = [row for row in starts.of(start_rows) if row.run == starts.mine.run and row.rank is not None]
    missed = sorted(row.rank for row in ranks if row.misses and row.rank is not None)
    hit = sorted(row.rank for row in ranks if row.hits and not row.misses and row.rank is not None)
    if missed and hit:
        alone = f"Rank {missed[0]} missed alone" if len(missed) == 1 else f"Ranks {listed(missed)} missed"
        yield f"{alone}, while {listed(hit)} hit: where ranks run in step, all wait for who compiles."


def _transferred(row: CacheTransfer) -> str:
    entries = sum(row.entries.values())
    what = f"{plural(entries, 'entry', 'entries')} of the caches"
    bytes_of = f", {size(row.size)}," if row.HasField("size") else ""
    verb = "loaded" if row.load else "saved"
    how = f"torch.compiler.{verb[:4]}_cache_artifacts"
    return f"The program {verb} {what}{bytes_of} in {duration(row.duration_ns / 1000)} ({how})."
