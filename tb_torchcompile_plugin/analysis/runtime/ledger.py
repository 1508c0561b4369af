"""Whose time is a step? Each nanosecond of its critical path is in one row, and the rows sum to the step time.

Where a GPU limits the steps, its path is the GPU's work, and while that idles what the host did on the way to the next
launch. Where the host limits them, it is the host's time, and while the host waits for the GPU the work that runs. A
row is a site and a kind of time. The site is the user's line; without one the operator with its shapes, or the position
between two slices.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.formatting import at_line, column_head, duration, percent
from tb_torchcompile_plugin.analysis.runtime.roofline import tensor_shapes
from tb_torchcompile_plugin.analysis.runtime.source_lines import UserLine, UserLines, line_launches, shares
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    covered_ns,
    distinct,
    exclusive,
    groups_of_equal,
    joined,
    mask_of,
    subtract,
    sums,
    union,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.captures import graph_origins
from tb_torchcompile_plugin.profile.gpu.idle import (
    HOST_KINDS,
    HostKind,
    ThreadActivity,
    busy_intervals,
    idle_gaps,
)
from tb_torchcompile_plugin.profile.gpu.launches import Launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.attribution import culprits_of
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    host_timeline,
    launch_sequence,
    modeled_windows,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import called_from
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, short_kernel
from tb_torchcompile_plugin.torch_names.slices import RUNTIME_CATS, is_graph, is_step

TimeKind = Literal[HostKind, Category]
KIND_WORDS: dict[TimeKind, str] = {
    "kernel_launches": "kernel launches",
    "compiled_graph": "compiled code",
    "python": "Python",
    "eager_operators": "eager operators",
    "graph_breaks": "graph breaks",
    "guards": "guards",
    "data_loading": "data loading",
    "waiting_for_gpu": "waiting for the GPU",
    "waiting_for_ranks": "waiting for other ranks",
    "compiling": "compiling",
    "unaccounted": "unaccounted time",
}
_MAX_ROWS = 200  # of the rest one row is the sum: a page of rows is more than anybody reads
_MOST = 0.8  # of the time of a call and what it calls, by which one line names it better; chosen by eye
_MAX_NAMES = 3  # kernels, operators or functions that a row names


class LedgerRow(msgspec.Struct, frozen=True):
    """The time of one site in a step, of one kind, on the host or on a GPU."""

    site: Annotated[str, column_head("Site", grow=True)]
    file: Annotated[str, column_head(hidden=True)]  # of the user's line; "" where unknown
    line: int | None
    kind: TimeKind
    is_gpu: Annotated[bool, column_head("On the GPU")]
    time_us: float  # per step; of the span without steps
    step_percent: float
    names: list[str]  # of the kernels, operators or functions that take most of it


class LedgerSite(msgspec.Struct, frozen=True):
    """All time of one site in a step."""

    site: Annotated[str, column_head("Line, operator or position", grow=True)]
    file: Annotated[str, column_head(hidden=True)]
    line: int | None
    time_us: Annotated[float, column_head(bar=True, total=True)]  # on the host and on the GPU
    host_us: Annotated[float, column_head(total=True)]
    gpu_us: Annotated[float, column_head(total=True)]
    step_percent: Annotated[float, column_head("Share of the step", total=True)]
    kinds: Annotated[list[TimeKind], column_head("What", grow=True)]  # with most time first


class Ledger(msgspec.Struct, frozen=True):
    """The critical path of a step by owner; both tables have most time first."""

    sentences: tuple[str, ...]
    sites: Annotated[list[LedgerSite], column_head("Where the time goes by line")]
    rows: Annotated[list[LedgerRow], column_head("By line and kind")]


class _Key(NamedTuple):
    site: str
    file: str
    line: int | None
    kind: TimeKind
    is_gpu: bool


class _Path(NamedTuple):
    """The critical path of the counted steps."""

    steps: int
    total_ns: int
    gpu_ns: Int64s  # of each piece of the GPU's work
    host_ns: Int64s  # of each piece of the host's time


def ledger(profile: Profile) -> Ledger:
    """Return the critical path of a step by owner."""
    path, times = profile.of(_path), defaultdict[_Key, Counter[str]](Counter)
    for key, name, ns in (*_gpu_rows(profile, path.gpu_ns), *_host_rows(profile, path.host_ns)):
        times[key][name] += ns
    rest = path.total_ns - sum(counter.total() for counter in times.values())
    assert rest >= 0, "the ledger is longer than the steps"
    if rest:
        times[_key(None, "", "unaccounted", is_gpu=False)][""] += rest
    rows = _rows(profile, path, times)
    sites = _sites(rows)
    named = next((site for site in sites if site.site), None)
    first = site_sentence(profile, named) if named else "The trace names no line or operator for this time."
    return Ledger((first,), sites, rows)


def _path(profile: Profile) -> _Path:
    """Cut the counted steps, on the clock that limits them, at what ran."""
    windows, device = profile.of(modeled_windows), profile.of(step_time).device
    host, work = profile.of(host_timeline), profile.of(_gpu_timeline)
    on_gpu, times = union(work.begin, work.end), union(*windows)
    if device is not None:
        gpu_ns = covered_ns(times, work.begin, work.end)
        host_ns = covered_ns(subtract(times, on_gpu), host.begin, host.end)
    else:
        waits = profile.of(_kinds) == HOST_KINDS.index("waiting_for_gpu")
        others = subtract(times, union(host.begin[waits], host.end[waits]))
        waiting = subtract(times, others)
        gpu_ns = covered_ns(waiting, work.begin, work.end)
        host_ns = covered_ns(joined(others, subtract(waiting, on_gpu)), host.begin, host.end)
    return _Path(len(windows.starts), times.total_ns, gpu_ns, host_ns)


class _Work(NamedTuple):
    """The work of one GPU in order of time, without overlap."""

    row: Int64s
    begin: Int64s
    end: Int64s


def _gpu_timeline(profile: Profile) -> _Work:
    """Return the work of the GPU on which the steps take longest, of the busiest one where the host limits them.

    Work that begins later counts from the end of what began before it. There is none where idle time is unknown.
    """
    trace, work, limiting = profile.trace, profile.of(gpu_work), profile.of(step_time).device
    busy_ns = {device: profile.of(busy_intervals)[device].total_ns for device in profile.of(idle_gaps)}
    busiest = max(busy_ns, key=lambda device: busy_ns[device], default=-1)
    device = busiest if limiting is None else limiting
    rows = work.index[work.device == device] if busy_ns else work.index[:0]
    rows = rows[np.lexsort((trace.ts[rows] + trace.dur[rows], trace.ts[rows]))]
    end = trace.ts[rows] + trace.dur[rows]
    begin, is_left = exclusive(trace.ts[rows], end)
    return _Work(rows[is_left], begin[is_left], end[is_left])


def _tracks(profile: Profile) -> Int64s:
    """Return the thread of each piece of the host's time; -1 where unknown."""
    trace, pieces = profile.trace, profile.of(host_timeline)
    of_points = profile.of(launch_sequence).track[pieces.point]
    return np.where(pieces.row >= 0, trace.track[pieces.row], of_points).astype(np.int64)


def _kinds(profile: Profile) -> Int64s:
    """Return the kind of each piece of the host's time, as an index into HOST_KINDS."""
    pieces = profile.of(host_timeline)
    kinds = profile.of(ThreadActivity).split(pieces.begin, pieces.end, profile.of(_tracks))
    return np.asarray(kinds.argmax(axis=1))


def _host_rows(profile: Profile, ns: Int64s) -> Iterator[tuple[_Key, str, int]]:
    trace, pieces = profile.trace, profile.of(host_timeline)
    counted = np.flatnonzero(ns)
    row = pieces.row[counted]
    # A call into the runtime is at the site of the operator that makes it.
    is_call = (row >= 0) & mask_of(trace.cats, RUNTIME_CATS.__contains__)[trace.cat[row]]
    row = np.where(is_call & (trace.parent[row] >= 0), trace.parent[row], row)
    blamed = culprits_of(profile, pieces.take(counted)._replace(row=row))
    position = np.full(len(counted), -1)
    unnamed = np.array([not row.name and not row.file for row in blamed.culprits], bool)[blamed.code]
    names, position[unnamed] = _positions(profile, counted[unnamed])
    owner = np.full(len(counted), -1)
    owner[row >= 0] = profile.of(Ownership).compile_ids(row[row >= 0])
    keys, group = distinct(blamed.code, profile.of(_kinds)[counted], position, owner)
    functions = profile.of(_functions)
    for (code, number, at, graph), time in zip(keys.T.tolist(), sums(group, ns[counted], len(keys.T))):
        kind = HOST_KINDS[number]
        if at >= 0 and kind == "python":  # there is nothing but a step's mark around it
            kind = "unaccounted"
        culprit, compile_id = blamed.culprits[code], profile.of(Ownership).name(graph)
        line = functions.get(compile_id or "")
        if culprit.file:
            line = UserLine(profile.of(UserLines).whole_path(culprit.file), culprit.line)
        graph_name = f"compiled graph {compile_id}" if compile_id else ""
        unknown = names[at] if at >= 0 else graph_name or culprit.name
        yield _key(line, unknown, kind, is_gpu=False), culprit.name, int(time)


def _functions(profile: Profile) -> dict[str, UserLine]:
    """Return by compile id the first line of the function that was compiled."""
    rows = profile.data.of(compilations) if profile.data else []
    return {row.compile_id: UserLine(row.file, row.line) for row in rows if row.file and row.line is not None}


def _key(line: UserLine | None, unknown: str, kind: TimeKind, *, is_gpu: bool) -> _Key:
    """Return the key of a line; `unknown` is the site where there is none."""
    if line is None:
        return _Key(unknown, "", None, kind, is_gpu)
    return _Key(at_line(*line), *line, kind, is_gpu)


def _positions(profile: Profile, rows: Int64s) -> tuple[list[str], Int64s]:
    """Return where these pieces are, "after X and before aten::mm", and for each of them an index into that."""
    trace, texts = profile.trace, dict[str, int]()
    pieces, tracks = profile.of(host_timeline), profile.of(_tracks)
    index = np.full(len(rows), -1)
    is_mark = mask_of(trace.names, is_step)
    for same in groups_of_equal(np.arange(len(rows)), tracks[rows]):
        track = int(tracks[rows[same[0]]])
        if track < 0:
            continue
        slices = np.arange(*trace.track_bounds[track : track + 2])
        slices = slices[~is_mark[trace.name[slices]]]
        end = trace.ts[slices] + trace.dur[slices]
        by_end = np.lexsort((trace.dur[slices], end))
        before = np.searchsorted(end[by_end], pieces.begin[rows[same]], "right") - 1
        after = np.searchsorted(trace.ts[slices], pieces.end[rows[same]])
        for at, last, following in zip(same.tolist(), before.tolist(), after.tolist()):
            parts = []
            if last >= 0:
                parts.append(f"after {trace.names[trace.name[slices[by_end[last]]]]}")
            if following < len(slices):
                parts.append(f"before {trace.names[trace.name[slices[following]]]}")
            index[at] = texts.setdefault(" and ".join(parts), len(texts))
    return list(texts), index


def _gpu_rows(profile: Profile, ns: Int64s) -> Iterator[tuple[_Key, str, int]]:
    """Yield the GPU's time by its site and category; a kernel that computes several lines counts for each in part."""
    trace, rows = profile.trace, profile.of(_gpu_timeline).row
    left = np.zeros(len(trace), np.int64)
    left[rows] = ns
    functions = profile.of(_functions)
    for part in profile.of(line_launches) if len(rows) else ():
        index = part.rows.index[part.at]
        if part.rows.device == "cpu" or not left[index].any():
            continue
        name, category = short_kernel(part.kernel.name), CATEGORIES[int(part.rows.category[part.at[0]])]
        if part.lines:
            for line, time in zip(part.lines, shares(left[index], len(part.lines)).tolist()):
                yield _key(line, "", category, is_gpu=True), name, time
        else:
            for site, same in _by_operator(profile, part.rows, part.at):
                graph = None if site else functions.get(part.kernel.compile_id or "")
                yield _key(graph, site or name, category, is_gpu=True), name, int(left[index[same]].sum())
        left[index] = 0


def _by_operator(profile: Profile, rows: Launches, at: Int64s) -> Iterator[tuple[str, Int64s]]:
    """Yield the launches of each operator with the shapes of its tensors, "" where it is unknown.

    Of kernels in a replayed CUDA graph, the operator when it was captured.
    """
    trace, operator = profile.trace, rows.op[at]
    is_label = mask_of(trace.names, lambda name: is_step(name) or is_graph(name))[trace.name[operator]]
    operator = np.where(is_label, -1, operator)
    shapes = tensor_shapes(profile, np.unique(operator[operator >= 0]))
    origins = profile.of(graph_origins).code[rows.index[at]]
    captured = ["", *(row.operator or row.module for row in profile.of(graph_origins).origins)]
    texts = [  # "aten::mm [64, 8] [8, 16]"
        captured[origin + 1] if row < 0 else " ".join((trace.names[trace.name[row]], *map(str, shapes[row])))
        for row, origin in zip(operator.tolist(), origins.tolist(), strict=True)
    ]
    for text, same in grouped(range(len(texts)), texts.__getitem__).items():
        yield text, np.array(same, np.int64)


def _rows(profile: Profile, path: _Path, times: dict[_Key, Counter[str]]) -> list[LedgerRow]:
    """Return the rows of a step as it is unprofiled, with most time first, from the times (ns) by what ran.

    A GPU works as long profiled as not, so what profiling adds is taken out of the host's time, in proportion.
    """
    step_us = profile.of(step_time).step_us
    on_gpu = sum(names.total() for key, names in times.items() if key.is_gpu)
    on_host = path.total_ns - on_gpu
    # Of very many steps only some are in the path: their mean may differ from the step time.
    whole_us = step_us * path.steps
    host_us = max(whole_us - on_gpu / 1000, 0.0) if on_host else 0.0
    scale = {False: host_us / max(on_host, 1), True: (whole_us - host_us) / max(on_gpu, 1)}
    rows = []
    for key, names in sorted(times.items(), key=lambda item: -item[1].total() * scale[item[0].is_gpu]):
        time_us = names.total() * scale[key.is_gpu] / max(path.steps, 1)
        named = [name for name, _ in names.most_common(_MAX_NAMES) if name and not is_graph(name)]
        rows.append(LedgerRow(*key, time_us, 100 * time_us / step_us if step_us else 0.0, named))
    kept, small = rows[:_MAX_ROWS], rows[_MAX_ROWS:]
    for (kind, is_gpu), others in grouped(small, lambda row: (row.kind, row.is_gpu)).items():
        time, share = sum(row.time_us for row in others), sum(row.step_percent for row in others)
        kept.append(LedgerRow("", "", None, kind, is_gpu, time, share, [f"{len(others):,} smaller rows"]))
    return kept


def _sites(rows: list[LedgerRow]) -> list[LedgerSite]:
    by_site = grouped(rows, lambda row: (row.site, row.file, row.line))
    sites = [_site(*site, list(map(_site_of, parts))) for site, parts in by_site.items()]
    return sorted(sites, key=lambda site: -site.step_percent)


def _site_of(row: LedgerRow) -> LedgerSite:
    host_us, gpu_us = (0.0, row.time_us) if row.is_gpu else (row.time_us, 0.0)
    return LedgerSite(
        row.site, row.file, row.line, row.time_us, host_us, gpu_us, row.step_percent, [row.kind]
    )


def _site(site: str, file: str, line: int | None, parts: list[LedgerSite]) -> LedgerSite:
    return LedgerSite(
        site,
        file,
        line,
        time_us=sum(part.time_us for part in parts),
        host_us=sum(part.host_us for part in parts),
        gpu_us=sum(part.gpu_us for part in parts),
        step_percent=sum(part.step_percent for part in parts),
        kinds=list(dict.fromkeys(kind for part in parts for kind in part.kinds)),
    )


def calling_sites(profile: Profile) -> list[LedgerSite]:
    """Return the sites with those that they call, by samples, with most time first.

    A line of the step counts for what it calls, unless one line in that has most of its time.
    """
    lines = profile.of(UserLines)
    called = {
        (lines.whole_path(file), line): (lines.whole_path(outer_file), outer)
        for (file, line), (outer_file, outer) in profile.of(called_from).items()
    }
    groups = grouped(
        profile.of(ledger).sites,
        # Two files may have one name.
        lambda site: called.get((site.file, site.line or 0), f"{site.file} {site.site}"),
    )
    whole = []
    for key, parts in groups.items():
        if isinstance(key, str) or parts[0].time_us >= _MOST * sum(part.time_us for part in parts):
            whole.append(parts[0])
        else:
            whole.append(_site(at_line(*key), *key, parts))
    return sorted(whole, key=lambda site: -site.step_percent)


def site_sentence(profile: Profile, site: LedgerSite) -> str:
    """Return "model.py:28 takes 3.10 ms of each step, 51.5 %."."""
    whole = "each step" if profile.of(step_time).steps else "this span"
    return f"{site.site} takes {duration(site.time_us)} of {whole}, {percent(site.step_percent)}."
