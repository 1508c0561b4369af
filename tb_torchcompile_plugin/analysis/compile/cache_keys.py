"""Which part of a compile cache key differs from that of another process that compiled the same graph?

torch records the parts of a key with a hash each, for hits and misses. Of the graph's code it records the hash alone;
the graphs of both processes then show which operator differs.
"""

import json
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

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
from tb_torchcompile_plugin.compile_log.record import Direction, Key
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.output_code import artifacts
from tb_torchcompile_plugin.generated_code.user_lines import node_lines, node_rows
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.torch_names.artifacts import KEY_SETTINGS, is_aot_graph
from tb_torchcompile_plugin.torch_names.caches import CODE, TORCH, KeyPart, order_of, part_of, title_of

_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_MISSING = KeyPart("missing", "", "missing")  # for a part that only the other key has


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
    """Identifies a lookup across processes: by its function, which compilation of it, and which of its graphs."""

    file: str
    function: str
    number: int  # 0 for the first function of this name in the file: its line may differ
    compilation: int  # 0 for the first one of this function
    cache: str
    direction: Direction | None
    graph: int


class KeyMismatch(NamedTuple):
    """How the key of a miss differs from that of another process."""

    parts: int  # how many parts of the key differ; 0 for the same key
    what: str  # in words
    than: str  # the other process
    same_run: bool  # the other process is a rank of the same run
    avoidable: bool  # the other process had an entry by then, so that the same key would have been a hit


def lookups_by_id(data: CompileData) -> dict[LookupId, CacheLookup]:
    """Identify the lookups that torch recorded one by one, except those of unknown functions."""
    functions: dict[tuple[str, str], dict[int | None, int]] = {}
    compilations: dict[tuple[str, str, int], dict[Key, int]] = {}
    rows = {}
    for row in data.of(cache_lookups):
        if row.file:
            lines = functions.setdefault((row.file, row.function), {})
            function = row.file, row.function, lines.setdefault(row.line, len(lines))
            numbers = compilations.setdefault(function, {})
            compilation = numbers.setdefault((row.epoch, row.compile_id), len(numbers))
            rows[LookupId(*function, compilation, row.cache, row.direction, row.graph or 0)] = row
    return rows


def compared_lookups(starts: Starts) -> tuple[CacheLookup, ...]:
    """Return the lookups in order of time, with what differs elsewhere."""
    mismatches = {id(row): mismatch for row, mismatch in starts.of(differences)}
    return tuple(
        replace(row, differs=mismatch.what, than=mismatch.than)
        if (mismatch := mismatches.get(id(row)))
        else row
        for row in starts.own.data.of(cache_lookups)
    )


def differences(starts: Starts) -> list[tuple[CacheLookup, KeyMismatch]]:
    """Return the misses that other processes explain, each with the nearest key: the fewest parts differ."""
    rows = []
    for lookup_id, row in starts.own.data.of(lookups_by_id).items():
        if row.result == "miss":
            mismatches = (_mismatch(starts.own, other, lookup_id) for other in starts.others)
            nearest = min(filter(None, mismatches), key=lambda mismatch: mismatch.parts, default=None)
            rows += [(row, nearest)] if nearest else []
    return rows


def _mismatch(own: Start, other: Start, lookup_id: LookupId) -> KeyMismatch | None:
    """Compare a miss with the same lookup of one other process. None where that explains nothing."""
    row, other_row = (start.data.of(lookups_by_id).get(lookup_id) for start in (own, other))
    here, there = own.data.summary.environment, other.data.summary.environment
    if row is None or other_row is None:
        return None
    if row.cache_key == other_row.cache_key:
        if here.written_ns <= there.recording_start_ns:
            return None  # this process compiled first
        parts, what = 0, _same_key(own, other, other_row.result)
    else:
        rows = _differing_parts((other.data, lookup_id), (own.data, lookup_id))
        parts, what = len(rows), listed(rows)
    if other_row.result == "hit":
        had_entry = there.recording_start_ns < here.written_ns
    else:
        had_entry = there.written_ns <= here.recording_start_ns
    return KeyMismatch(parts, what, other.name, other.run == own.run, had_entry) if what else None


def _same_key(own: Start, other: Start, result: str) -> str:
    """Explain a miss with the key of another process: another place to look for the entry, or the time."""
    here, there = own.data.summary.environment, other.data.summary.environment
    for name, before, now in (
        (_CACHE_FOLDER, there.variables.get(_CACHE_FOLDER), here.variables.get(_CACHE_FOLDER)),
        ("the host", there.hostname, here.hostname),
    ):
        if before != now:
            return f"{name} ({before or 'not set'} → {now or 'not set'}; same key)"
    if result == "miss" and here.recording_start_ns <= there.written_ns:
        return "the time (same key, compiled by both at once)"
    return "the entry (same key; it was removed or could not be used)"


def key_notes(a: CompileData | None, b: CompileData | None) -> list[str]:
    """Say which parts of the cache keys of the same graphs differ between A and B; [] where none does."""
    if a is None or b is None or a is b:
        return []
    same_graphs = _same_graphs(a, b)
    rows, other_rows = a.of(lookups_by_id), b.of(lookups_by_id)
    changed = [pair for pair in same_graphs if rows[pair[0]].cache_key != other_rows[pair[1]].cache_key]
    if not changed:
        return []
    parts: dict[str, KeyDifference] = {}
    for graph, other_graph in changed:
        for row in _differing_parts((a, graph), (b, other_graph)):
            parts.setdefault(row.part, row)
    what = listed(sorted(parts.values(), key=lambda row: order_of(row.part)))
    where = f" in {what}" if what else ", and the parts of these keys were not recorded"
    return [f"The compile cache keys of {len(changed)} of {plural(len(same_graphs), 'graph')} differ{where}"]


def _same_graphs(a: CompileData, b: CompileData) -> list[tuple[LookupId, LookupId]]:
    """Match the FX graphs of two processes; by the name of their file where the program is in another folder."""
    graphs, other_graphs = (
        [row for row in data.of(lookups_by_id) if row.cache == FX_GRAPH_CACHE] for data in (a, b)
    )
    same = {graph: graph for graph in graphs if graph in other_graphs}
    by_name, other_by_name = (
        grouped((row for row in rows if row not in same), _without_folder) for rows in (graphs, other_graphs)
    )
    for name, rows in by_name.items():
        other_rows = other_by_name.get(name, [])
        if len(rows) == len(other_rows) == 1:
            same[rows[0]] = other_rows[0]
    return list(same.items())


def _without_folder(lookup_id: LookupId) -> LookupId:
    return lookup_id._replace(file=re.split(r"[/\\]", lookup_id.file)[-1])


_Lookup = tuple[CompileData, LookupId]  # of one process


def _differing_parts(before: _Lookup, now: _Lookup) -> list[KeyDifference]:
    """Return the parts of two keys that differ, those that explain others first; [] where unknown."""
    parts, now_parts = _parts(*before), _parts(*now)
    rows = []
    for name in {**parts, **now_parts} if parts and now_parts else ():
        part, now_part = parts.get(name, _MISSING), now_parts.get(name, _MISSING)
        if part.hash == now_part.hash:
            continue
        if name == CODE:
            rows.append(_code_difference(_operators(*before), _operators(*now)))
        else:
            rows.append(difference(name, _value(part, before[0]), _value(now_part, now[0])))
    return sorted(rows, key=lambda row: order_of(row.part))


def _value(part: KeyPart, data: CompileData) -> str:
    """Return the value of a part; torch's is a hash of its source code, so its version stands for it."""
    return data.summary.environment.torch_version if part.name == TORCH else part.value


_Operators = list[tuple[str, str]]  # of a graph, each with the line of the program


def _code_difference(before: _Operators, now: _Operators) -> KeyDifference:
    """Return the first operator that differs, with the line of the program behind it; "" where unknown."""
    pairs = zip_longest(before, now, fillvalue=("nothing", "")) if before and now else ()
    unknown = ("", ""), ("", "")
    (text, line), (now_text, now_line) = next((pair for pair in pairs if pair[0][0] != pair[1][0]), unknown)
    where = f" at {now_line or line}" if now_line or line else ""
    return KeyDifference(CODE, f"{title_of(CODE)}{where}", text, now_text)


def _operators(data: CompileData, lookup_id: LookupId) -> _Operators:
    """Return the operators of a graph as AOTAutograd hands it to inductor."""
    row = data.of(lookups_by_id)[lookup_id]
    graphs = [
        artifact
        for artifact in data.of(artifacts, row.epoch, row.compile_id)
        if is_aot_graph(artifact.name, backward=row.direction == "backward")
    ]
    try:
        text = read_payload(data, graphs[lookup_id.graph].id) if lookup_id.graph < len(graphs) else ""
    except UserError:
        return []
    lines = {node: at_line(frame.file, frame.line) for node, frame in node_lines(text).items()}
    return [(code.partition(";")[0], lines.get(node, "")) for node, (_, code) in node_rows(text).items()]


def _parts(data: CompileData, lookup_id: LookupId) -> dict[str, KeyPart]:
    """Return the parts of the key of the FX graph: AOTAutograd's keys have no recorded parts."""
    row = data.of(lookups_by_id).get(lookup_id._replace(cache=FX_GRAPH_CACHE))
    return {} if row is None or row.artifact is None else data.of(key_parts, row.artifact)


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
