"""What took the time from the start of a process to its first steady step, and what does a warm start save of it?"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.compile import cache_lookups, startup_parts
from tb_torchcompile_plugin.analysis.compile.cache_keys import compared_lookups, differences
from tb_torchcompile_plugin.analysis.compile.cache_lookups import CacheLookup
from tb_torchcompile_plugin.analysis.compile.starts import Starts
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import (
    at_line,
    duration,
    joined_names,
    percent,
    plural,
    seconds,
    size,
)
from tb_torchcompile_plugin.analysis.sheet import column_head
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
_NEXT_STEP = (
    "Give every process of the job the same TORCHINDUCTOR_CACHE_DIR, and keep the settings and code that are part "
    "of the key the same; or hand the entries on: torch.compiler.save_cache_artifacts, load_cache_artifacts"
)


class StartUp(msgspec.Struct, frozen=True):
    """A start-up: its parts, which sum to it, and each cache lookup."""

    sentences: tuple[str, ...]
    parts: Annotated[tuple[startup_parts.StartPart, ...], column_head("Until the first steady step")]
    start_lookups: Annotated[tuple[CacheLookup, ...], column_head("Cache lookups")]


def startup(starts: Starts) -> StartUp:
    """Describe the start-up of the process in view; without compilations only a sentence says so."""
    return StartUp(
        sentences=tuple(_sentences(starts)),
        parts=starts.own.data.of(startup_parts.start_parts),
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
    yield from _settings(data)
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


def _settings(data: CompileData) -> Iterator[str]:
    settings = data.summary.environment.settings
    for name, text in names.IS_OFF.items():
        # `force_disable_caches` matters when it is on, the others when they are off.
        if settings.get(name) == str("disable" in name):
            yield text


def _transferred(row: CacheTransfer) -> str:
    entries = f"{plural(sum(row.entries.values()), 'entry', 'entries')} of the caches"
    transferred = f", {size(row.size)}," if row.HasField("size") else ""
    verb = "loaded" if row.load else "saved"
    function = f"torch.compiler.{verb[:4]}_cache_artifacts"
    return f"The program {verb} {entries}{transferred} in {duration(row.duration_ns / 1000)} ({function})."
