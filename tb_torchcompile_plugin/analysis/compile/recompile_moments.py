"""Where in a profiled span did the recompiles happen, and how often did it run each version?"""

import msgspec

from tb_torchcompile_plugin.analysis.compile.recompiles import (
    Recompile,
    RecompiledFrame,
    RecompileReport,
    Version,
    frame_of,
    recompiled_frames,
    recompiles,
    recompiles_headline,
)
from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import calls_by_id
from tb_torchcompile_plugin.profile.intervals import us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_around
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData

_MAX_CLOCK_DIFFERENCE_NS = 1_000_000_000  # the log's clock and the trace's differ by milliseconds at most


def recompile_moments(profile: Profile) -> list[Recompile] | None:
    """Return the recompiles as the span shows them, in torch's order; None without compile data."""
    if profile.data is None:
        return None
    calls = profile.of(calls_by_id)
    compiled = forward_compilations(profile.data.summary)
    return [
        _moment(profile, row, compiled.get((row.epoch, row.compile_id)), calls[row.compile_id])
        for row in profile.data.of(recompiles)
    ]


def _moment(profile: Profile, row: Recompile, compilation: Compilation | None, calls: int) -> Recompile:
    moment = msgspec.structs.replace(row, calls=calls)
    if compilation is None or not compilation.HasField("start_ns"):
        return moment
    first, last = profile.trace.window()
    # The start of the trace's own slice of that compilation, otherwise that in the log.
    trace, ownership = profile.trace, profile.of(Ownership)
    logged = compilation.start_ns - trace.base_ns
    slices = (index for index, code in ownership.compilations if ownership.names[code] == row.compile_id)
    starts = [int(trace.ts[index]) for index in slices]
    nearest = min(starts, key=lambda start: abs(start - logged), default=logged)
    start = nearest if abs(nearest - logged) < _MAX_CLOCK_DIFFERENCE_NS else logged
    step, when = step_around(profile, start), f"{duration(us(start - first))} into the span"
    if step:
        when = f"in {step}"
    elif start < first:
        when = f"{duration(us(first - start))} before the span"
    elif start >= last:
        when = "after the span"
    return msgspec.structs.replace(moment, step=step, when=when)


def frame_versions(profile: Profile) -> list[RecompiledFrame]:
    """Return `recompiled_frames` with the calls of their versions.

    Without compile data: the frames that ran in several versions, or in another one than the first.
    """
    calls = profile.of(calls_by_id)
    replace = msgspec.structs.replace
    if profile.data is not None:
        rows = []
        for row in profile.data.of(recompiled_frames):
            versions = [replace(version, calls=calls[version.compile_id]) for version in row.versions]
            rows.append(replace(row, versions=versions))
        return rows
    ran = (Version(compile_id, None, count) for compile_id, count in calls.items())
    frames = grouped(ran, lambda version: frame_of(version.compile_id))
    return [
        RecompiledFrame(frame, 0, "", "", None, versions, None, None)
        for frame, versions in frames.items()
        if len(versions) > 1 or not versions[0].compile_id.endswith("/0")
    ]


def headline(profile: Profile) -> str:
    """Return what recompiles cost; without compile data, that there were some."""
    if profile.data is not None:
        return profile.data.of(recompiles_headline)
    frames = profile.of(frame_versions)
    if not frames:
        return "Recompiles are unknown: there is no compile data."
    which = "it was" if len(frames) == 1 else "they were"
    return f"{plural(len(frames), 'function')} ran in more than one version: {which} recompiled."


def recompile_report(about: Profile | CompileData) -> RecompileReport:
    """Return the recompiles, and the versions of the frames that have several."""
    if isinstance(about, Profile):
        sentence, rows, frames = about.of(headline), about.of(recompile_moments), about.of(frame_versions)
    else:
        sentence, rows, frames = (
            about.of(recompiles_headline),
            about.of(recompiles),
            about.of(recompiled_frames),
        )
    refused = (refusal(frame) for frame in frames if frame.limit_hit)
    return RecompileReport((sentence, *refused), tuple(rows or ()), tuple(frames))


def refusal(frame: RecompiledFrame) -> str:
    """Say that torch compiles no more versions of this frame, and what helps."""
    name = f"`{frame.function}`" if frame.function else f"Frame {frame.frame}"
    limit = "" if frame.limit is None else f" ({frame.limit:,})"
    return (
        f"{name} reached the recompile limit{limit}: calls that none of its "
        f"{plural(len(frame.versions), 'version')} fits run eagerly. Remove the cause of the recompiles, or raise "
        "`torch._dynamo.config.recompile_limit`."
    )
