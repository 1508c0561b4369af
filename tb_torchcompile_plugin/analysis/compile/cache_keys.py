"""Which lookups of two processes are the same, and which parts of a graph's key differ, so that one of them missed?

torch records the parts of a key with a hash each, for hits and misses. Of the graph's code it records the hash alone;
the graphs of both processes then show which line differs.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.compile.cache_lookups import (
    FX_GRAPH_CACHE,
    CacheLookup,
    KeyDifference,
    cache_lookups,
    difference,
    listed,
)
from tb_torchcompile_plugin.analysis.formatting import at_line, plural
from tb_torchcompile_plugin.compile_log.record import Direction, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.artifacts import KEY_SETTINGS, NO_PLACE, NODE_PLACE, is_aot_graph
from tb_torchcompile_plugin.torch_names.caches import CODE, TORCH, KeyPart, order_of, part_of, title_of

FrameVersion: TypeAlias = tuple[str, int, str, int]  # file, line, function, and which version of it

_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_COMPILED_FIRST = "the order (same key, compiled here first)"
_LAST = 1 << 30  # sorts after any number of differing parts


class Start(NamedTuple):
    """One process of the logdir."""

    run: str
    worker: str
    rank: int | None
    data: CompileData

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return f"{self.run}, {self.worker if self.rank is None else f'rank {self.rank}'}"


@dataclass(frozen=True, eq=False)
class Starts(Memoized):
    """One process, and those that it is compared with: the ranks of its run first, then other runs."""

    own: Start
    others: tuple[Start, ...]


class LookupId(NamedTuple):
    """Identifies a lookup across processes: by its frame, which version of it, and which of its graphs."""

    file: str
    line: int
    function: str
    version: int
    cache: str
    direction: Direction | None
    graph: int


class KeyMismatch(NamedTuple):
    """How the key of a miss differs from that of another process."""

    what: str  # in words
    than: str  # the other process
    same_run: bool  # the other process is a rank of the same run
    avoidable: bool  # the other process had an entry by then, so that the same key would have been a hit


class _ProcessLookup(NamedTuple):
    """A lookup of one process."""

    data: CompileData
    id: LookupId

    @property
    def row(self) -> CacheLookup:
        return self.data.of(lookups_by_id)[self.id]

    @property
    def graph_row(self) -> CacheLookup | None:
        """The lookup of the FX graph inside it; AOTAutograd's keys have no recorded parts."""
        return self.data.of(lookups_by_id).get(self.id._replace(cache=FX_GRAPH_CACHE))


class _Pair(NamedTuple):
    """The same lookup in two processes."""

    before: _ProcessLookup
    now: _ProcessLookup

    def has_same_key(self) -> bool:
        return self.before.row.cache_key == self.now.row.cache_key


def versioned_frames(data: CompileData) -> dict[FrameVersion, Compilation]:
    """Identify each compilation by its function and how many of its versions were compiled before."""
    versions = Counter[tuple[str, int, str]]()
    rows: dict[FrameVersion, Compilation] = {}
    for row in sorted(forward_compilations(data.summary).values(), key=lambda row: row.start_ns):
        function = (row.file, row.line, row.function)
        frame: FrameVersion = (*function, versions[function])
        rows[frame] = row
        versions[function] += 1
    return rows


def matched_frames(
    own: CompileData, other: CompileData, *, anywhere: bool = False
) -> dict[FrameVersion, FrameVersion]:
    """Match the frames of two processes: by file, line and function, then in their order without the line.

    anywhere: and then by the file's name alone, as the same program may be in another folder.
    """
    identities: list[Callable[[FrameVersion], tuple[object, ...]]] = [
        lambda frame: frame,
        lambda frame: (frame[0], frame[2]),
    ]
    if anywhere:
        identities.append(lambda frame: (re.split(r"[/\\]", frame[0])[-1], frame[2]))
    left, other_left = list(own.of(versioned_frames)), list(other.of(versioned_frames))
    matches: dict[FrameVersion, FrameVersion] = {}
    for identity in identities:
        groups = grouped(other_left, identity)
        matches |= {frame: groups[key].pop(0) for frame in left if groups.get(key := identity(frame))}
        taken = set(matches.values())
        left = [frame for frame in left if frame not in matches]
        other_left = [frame for frame in other_left if frame not in taken]
    return matches


def lookups_by_id(data: CompileData) -> dict[LookupId, CacheLookup]:
    """Identify the lookups that torch recorded one by one."""
    frames = {key_of(row.key): frame for frame, row in data.of(versioned_frames).items()}
    return {
        LookupId(*frame, lookup.cache, lookup.direction, lookup.graph or 0): lookup
        for lookup in data.of(cache_lookups)
        if (frame := frames.get((lookup.epoch, lookup.compile_id)))
    }


def compared_lookups(starts: Starts) -> tuple[CacheLookup, ...]:
    """Return the lookups in order of time, with what differs elsewhere."""
    data = starts.own.data
    mismatches = starts.of(differences)
    by_lookup = {id(row): mismatches.get(name) for name, row in data.of(lookups_by_id).items()}
    return tuple(
        replace(row, differs=mismatch.what, than=mismatch.than)
        if (mismatch := by_lookup.get(id(row)))
        else row
        for row in data.of(cache_lookups)
    )


def differences(starts: Starts) -> dict[LookupId, KeyMismatch]:
    """Map misses to the difference from the nearest process that made the same lookup."""
    own = starts.own
    candidates: dict[LookupId, list[tuple[int, KeyMismatch]]] = {}
    for other in starts.others:
        for pair in _pairs(other.data, own.data):
            if pair.now.row.result == "miss":
                candidates.setdefault(pair.now.id, []).extend(_mismatch(own, other, pair))
    # Prefer a process with the same key, then the one that differs in the fewest parts.
    return {
        lookup_id: min(candidates[lookup_id], key=lambda candidate: candidate[0])[1]
        for lookup_id in own.data.of(lookups_by_id)
        if candidates.get(lookup_id)
    }


def _mismatch(own: Start, other: Start, pair: _Pair) -> Iterator[tuple[int, KeyMismatch]]:
    """Yield the mismatch with one other process, with the number of parts that differ; nothing where it is unknown."""
    environment, other_environment = own.data.summary.environment, other.data.summary.environment
    result = pair.before.row.result
    had_entry = other_environment.written_ns <= environment.recording_start_ns
    if result == "hit":
        had_entry = other_environment.recording_start_ns < environment.written_ns
    process = (other.name, other.run == own.run, bool(had_entry))
    if pair.has_same_key():
        what = _same_key(own, other, result)
        yield _LAST if what == _COMPILED_FIRST else 0, KeyMismatch(what, *process)
    elif what := _what_differs([pair]):
        yield len(_differing_parts(pair)), KeyMismatch(what, *process)


def key_notes(a: CompileData | None, b: CompileData | None) -> list[str]:
    """Say which parts of the cache keys of the same graphs differ between A and B; [] where none does."""
    if a is None or b is None or a is b:
        return []
    pairs = [pair for pair in _pairs(a, b, anywhere=True) if pair.now.id.cache == FX_GRAPH_CACHE]
    changed = [pair for pair in pairs if not pair.has_same_key()]
    if not changed:
        return []
    what = _what_differs(changed)
    parts = f" in {what}" if what else ", and the parts of these keys were not recorded"
    return [f"The compile cache keys of {len(changed)} of {plural(len(pairs), 'graph')} differ{parts}"]


def _what_differs(pairs: Sequence[_Pair]) -> str:
    """List the parts that differ: those of most keys first, of these the one that explains the others."""
    keys, rows, quoted = Counter[str](), dict[str, KeyDifference](), ""
    for pair in pairs:
        for name, before, now in _differing_parts(pair):
            keys[name] += 1
            if name == CODE and name not in rows:
                line, quoted = _code_line(pair)
                rows[name] = KeyDifference(name, title_of(name) + line, "", "")
            elif name not in rows:
                rows[name] = difference(name, before, now)
    names = sorted(rows, key=lambda name: (-keys[name], order_of(name)))
    return listed([rows[name] for name in names]) + quoted


def _pairs(before: CompileData, now: CompileData, *, anywhere: bool = False) -> list[_Pair]:
    frames = matched_frames(now, before, anywhere=anywhere)
    pairs = []
    for now_id in now.of(lookups_by_id):
        if frame := frames.get(now_id[:4]):
            before_id = LookupId(*frame, *now_id[4:])
            if before_id in before.of(lookups_by_id):
                pairs.append(_Pair(_ProcessLookup(before, before_id), _ProcessLookup(now, now_id)))
    return pairs


def _same_key(own: Start, other: Start, result: str) -> str:
    """Explain a miss with the key of another process: another place to look for the entry, or who compiled first."""
    environment, other_environment = own.data.summary.environment, other.data.summary.environment
    if environment.written_ns <= other_environment.recording_start_ns:
        return _COMPILED_FIRST
    for name, before, now in (
        (_CACHE_FOLDER, *(row.variables.get(_CACHE_FOLDER) for row in (other_environment, environment))),
        ("the host", other_environment.hostname, environment.hostname),
    ):
        if before != now:
            return f"{name} ({before or 'not set'} → {now or 'not set'}; same key)"
    if result == "miss" and environment.recording_start_ns <= other_environment.written_ns:
        return "the time (same key, compiled by both at once)"
    return "the entry (same key; it was removed or could not be used)"


def _differing_parts(pair: _Pair) -> list[tuple[str, str, str]]:
    """Return the name and both values of the parts of two keys that differ; [] where unknown."""
    parts, now_parts = _parts(pair.before), _parts(pair.now)
    rows = []
    for name in {**parts, **now_parts} if parts and now_parts else ():
        part, now_part = parts.get(name), now_parts.get(name)
        if not (part and now_part and part.hash == now_part.hash):
            rows.append((name, _value(part, pair.before.data), _value(now_part, pair.now.data)))
    return rows


def _value(part: KeyPart | None, data: CompileData) -> str:
    """Return the value of a part; torch's is a hash of its source code, so its version stands for it."""
    if part is None:
        return "missing"
    return data.summary.environment.torch_version if part.name == TORCH else part.value


def _parts(lookup: _ProcessLookup) -> dict[str, KeyPart]:
    row = lookup.graph_row
    return {} if row is None or row.artifact is None else lookup.data.of(key_parts, row.artifact)


def key_parts(data: CompileData, artifact: int) -> dict[str, KeyPart]:
    """Read the parts of a key by name from the artifact that records the lookup; {} where it has none.

    Settings are a text of their own, stored before the first record that has them.
    """
    record = data.summary.artifacts[artifact]
    settings = [
        number
        for number, text in enumerate(data.summary.artifacts[:artifact])
        if text.name == KEY_SETTINGS and text.key == record.key
    ]
    parts: dict[str, KeyPart] = {}
    for number in (artifact, *settings[-1:]):
        try:
            decoded = json.loads(read_payload(data, number))
        except (UserError, ValueError):
            continue
        lines = decoded.get("components") if isinstance(decoded, dict) else decoded
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, str) and (part := part_of(line)):
                parts[part.name] = part
    return parts


def _code_line(pair: _Pair) -> tuple[str, str]:
    """Return " at m.py:4", the first line of the program whose operators differ, and these; "" where unknown.

    The operators are behind "  #", as torch quotes code, so that they stay out of files without code.
    """
    before, now = _graph(pair.before), _graph(pair.now)
    line = ""
    for (text, _), (now_text, line_of_node) in (
        zip_longest(before, now, fillvalue=("", "")) if before and now else ()
    ):
        line = line_of_node or line
        if text != now_text:
            return f" at {line}" if line else "", f"  # {text or 'nothing'} → {now_text or 'nothing'}"
    return "", ""


def _graph(lookup: _ProcessLookup) -> list[tuple[str, str]]:
    """Return the operators of a graph as AOTAutograd hands it to inductor, each with the line of the program."""
    if (row := lookup.graph_row) is None:
        return []
    texts = [
        number
        for number, artifact in enumerate(lookup.data.summary.artifacts)
        if key_of(artifact.key) == (row.epoch, row.compile_id)
        and is_aot_graph(artifact.name, backward=row.direction == "backward")
    ]
    try:
        graph = read_payload(lookup.data, texts[lookup.id.graph]) if len(texts) > lookup.id.graph else ""
    except UserError:
        return []
    rows, line_of_node = [], ""
    for line in graph.splitlines():
        if match := NODE_PLACE.match(line):
            line_of_node = at_line(match[1], int(match[2]))
        elif NO_PLACE.match(line):
            line_of_node = ""
        elif " = " in (text := line.partition(";")[0].strip()) or text.startswith("return "):
            rows.append((text, line_of_node))
    return rows
