"""Which parts of a graph's cache key differ from those of another process, so that a lookup missed?

torch records the parts of a key with a hash each, for hits and misses. Of the graph's code it records the hash alone;
the graphs of both processes then show which line differs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.compile.cache_lookups import (
    FX_GRAPH_CACHE,
    CacheLookup,
    KeyDifference,
    cache_lookups,
    counted_lookups,
    difference,
    listed,
)
from tb_torchcompile_plugin.analysis.compile.starts import (
    LookupId,
    Start,
    Starts,
    lookups_by_id,
    matched_frames,
)
from tb_torchcompile_plugin.analysis.formatting import at_line, plural
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import KEY_SETTINGS, NO_PLACE, NODE_PLACE, is_aot_graph
from tb_torchcompile_plugin.torch_names.caches import CODE, TORCH, KeyPart, order_of, part_of, title_of

_DifferingPart: TypeAlias = tuple[str, str | None, str | None]  # name, value here, and in the other process

_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_COMPILED_FIRST = "not the key: it was compiled here first"
_LAST = 1 << 30  # sorts after any number of differing parts
_MAX_VALUE_CHARS = 60  # longer values are cut off in a sentence


class KeyMismatch(NamedTuple):
    """How the key of a miss differs from that of another process."""

    what: str  # in words
    than: str  # the other process
    same_run: bool  # the other process is a rank of the same run
    avoidable: bool  # the other process had an entry by then, so that the same key would have been a hit


class _Pair(NamedTuple):
    """The same lookup in two processes."""

    own: CompileData
    own_id: LookupId
    other: CompileData
    other_id: LookupId

    def has_same_key(self) -> bool:
        return self.lookup.cache_key == self.other_lookup.cache_key

    @property
    def lookup(self) -> CacheLookup:
        return self.own.of(lookups_by_id)[self.own_id]

    @property
    def other_lookup(self) -> CacheLookup:
        return self.other.of(lookups_by_id)[self.other_id]


def compared_lookups(starts: Starts) -> tuple[CacheLookup, ...]:
    """Return the lookups in order of time, with what differs elsewhere; then those of which torch counts the number."""
    data = starts.own.data
    mismatches = starts.of(differences)
    by_lookup = {id(row): mismatches.get(name) for name, row in data.of(lookups_by_id).items()}
    rows = []
    for row in data.of(cache_lookups):
        if mismatch := by_lookup.get(id(row)):
            row = replace(row, differs=mismatch.what, than=mismatch.than)
        rows.append(row)
    return (*rows, *counted_lookups(data))


def differences(starts: Starts) -> dict[LookupId, KeyMismatch]:
    """Map misses to the difference from the nearest process that made the same lookup."""
    own = starts.own
    candidates: dict[LookupId, list[tuple[int, KeyMismatch]]] = {}
    for other in starts.others:
        for pair in _pairs(own.data, other.data):
            if pair.lookup.result == "miss":
                candidates.setdefault(pair.own_id, []).extend(_mismatch(own, other, pair))
    # Prefer a process with the same key, then the one that differs in the fewest parts.
    return {
        lookup_id: min(candidates[lookup_id], key=lambda candidate: candidate[0])[1]
        for lookup_id in own.data.of(lookups_by_id)
        if candidates.get(lookup_id)
    }


def _mismatch(own: Start, other: Start, pair: _Pair) -> Iterator[tuple[int, KeyMismatch]]:
    """Yield the mismatch with one other process, with the number of parts that differ; nothing where it is unknown."""
    environment, other_environment = own.data.summary.environment, other.data.summary.environment
    result = pair.other_lookup.result
    had_entry = other_environment.written_ns <= environment.recording_start_ns
    if result == "hit":
        had_entry = other_environment.recording_start_ns < environment.written_ns
    process = (other.name, other.run == own.run, bool(had_entry))
    if pair.has_same_key():
        what = _same_key(own, other, result)
        yield _LAST if what == _COMPILED_FIRST else 0, KeyMismatch(what, *process)
    elif parts := _differing_parts(pair):
        yield len(parts), KeyMismatch(_describe(parts, pair), *process)


def key_notes(a: CompileData | None, b: CompileData | None) -> list[str]:
    """Say which parts of the cache keys of the same graphs differ between A and B; [] where none does."""
    if a is None or b is None or a is b:
        return []
    pairs = [pair for pair in _pairs(a, b, anywhere=True) if pair.own_id.cache == FX_GRAPH_CACHE]
    changed = [pair for pair in pairs if not pair.has_same_key()]
    if not changed:
        return []
    graphs = f"{len(changed)} of {plural(len(pairs), 'graph')}"
    if not (rows := differing_parts(changed)):
        return [f"The compile cache keys of {graphs} differ, and the parts of these keys were not recorded."]
    code = next((pair for pair in changed if any(row[0] == CODE for row in _differing_parts(pair))), None)
    operators = _code_line(code)[1:] if code else None
    quoted = "  # {} in A, {} in B".format(*operators) if operators and any(operators) else ""
    return [f"The compile cache keys of {graphs} differ in {listed(rows)}.{quoted}"]


def key_differences(own: CompileData, other: CompileData) -> list[KeyDifference]:
    """Return the parts that differ between the keys of the same graphs in two processes; [] where unknown."""
    return differing_parts([pair for pair in _pairs(own, other) if not pair.has_same_key()])


def differing_parts(pairs: Sequence[_Pair]) -> list[KeyDifference]:
    """Return the parts that differ, each once: those of most keys first, of these the one that explains the others."""
    keys, rows = Counter[str](), dict[str, KeyDifference]()
    for pair in pairs:
        for name, value, other_value in _differing_parts(pair):
            keys[name] += 1
            if name not in rows:
                title = title_of(name) + (_code_line(pair)[0] if name == CODE else "")
                rows[name] = difference(title, name, value or "", other_value or "")
    return [rows[name] for name in sorted(rows, key=lambda name: (-keys[name], order_of(name)))]


def _pairs(own: CompileData, other: CompileData, *, anywhere: bool = False) -> list[_Pair]:
    frames = matched_frames(own, other, anywhere=anywhere)
    other_ids = other.of(lookups_by_id)
    pairs = []
    for lookup_id in own.of(lookups_by_id):
        if frame := frames.get(lookup_id[:4]):
            other_id = LookupId(*frame, *lookup_id[4:])
            if other_id in other_ids:
                pairs.append(_Pair(own, lookup_id, other, other_id))
    return pairs


def _graph_lookup(data: CompileData, lookup_id: LookupId) -> CacheLookup | None:
    """Return the lookup of the FX graph inside a lookup; AOTAutograd's keys have no recorded parts."""
    return data.of(lookups_by_id).get(lookup_id._replace(cache=FX_GRAPH_CACHE))


def _same_key(own: Start, other: Start, result: str) -> str:
    """Explain a miss with the key of another process: another place to look for the entry, or who compiled first."""
    environment, other_environment = own.data.summary.environment, other.data.summary.environment
    if environment.written_ns <= other_environment.recording_start_ns:
        return _COMPILED_FIRST
    folder, other_folder = (row.variables.get(_CACHE_FOLDER) for row in (environment, other_environment))
    if folder != other_folder:
        return f"not the key: {_CACHE_FOLDER} is {folder or 'not set'} here, and {other_folder or 'not set'} there"
    if environment.hostname != other_environment.hostname:
        return f"not the key: this is host {environment.hostname}, and that one {other_environment.hostname}"
    if result == "miss" and environment.recording_start_ns <= other_environment.written_ns:
        return "not the key: both compiled it at the same time"
    return "not the key: the entry was removed, or could not be used"


def _differing_parts(pair: _Pair) -> list[_DifferingPart]:
    """Return the parts of two keys that differ with their values, what explains the others first; [] where unknown."""
    parts, other_parts = _parts(pair.own, pair.own_id), _parts(pair.other, pair.other_id)
    if not parts or not other_parts:
        return []
    rows = []
    for name in {**parts, **other_parts}:
        part, other_part = parts.get(name), other_parts.get(name)
        if not (part and other_part and part.hash == other_part.hash):
            rows.append((name, _value(part, pair.own), _value(other_part, pair.other)))
    return sorted(rows, key=lambda row: order_of(row[0]))


def _value(part: KeyPart | None, data: CompileData) -> str | None:
    """Return the value of a part, None of a missing one; torch's is its version, the graph's is not quoted."""
    if part is None:
        return None
    instead = {TORCH: data.summary.environment.torch_version, CODE: ""}
    return instead.get(part.name, part.value)


def _parts(data: CompileData, lookup_id: LookupId) -> dict[str, KeyPart]:
    lookup = _graph_lookup(data, lookup_id)
    return {} if lookup is None or lookup.artifact is None else data.of(key_parts, lookup.artifact)


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


def _describe(parts: list[_DifferingPart], pair: _Pair) -> str:
    name, *texts = parts[0]
    more = f", and {plural(len(parts) - 1, 'more part')} of the key" if len(parts) > 1 else ""
    if name == CODE:
        line, *operators = _code_line(pair)
        # Behind "  #", as torch quotes code, so that it stays out of files without code.
        quoted = "  # {} here, {} there".format(*operators) if any(operators) else ""
        return f"{title_of(name)}{line}{more}{quoted}"
    values = [
        "not there"
        if text is None
        else text[:_MAX_VALUE_CHARS] + ("…" if len(text) > _MAX_VALUE_CHARS else "")
        for text in texts
    ]
    comparison = f" is {values[0]} here, and {values[1]} there" if any(values) else ""
    return f"{title_of(name)}{comparison}{more}"


def _code_line(pair: _Pair) -> tuple[str, str, str]:
    """Return " at " the first line of the program whose operators differ, and these operators; "" where unknown."""
    operators, other_operators = _graph(pair.own, pair.own_id), _graph(pair.other, pair.other_id)
    if not operators or not other_operators:
        return "", "", ""
    line = ""
    for (text, line_of_node), (other_text, _) in zip_longest(operators, other_operators, fillvalue=("", "")):
        line = line_of_node or line
        if text != other_text:
            return f" at {line}" if line else "", text or "nothing", other_text or "nothing"
    return "", "", ""


def _graph(data: CompileData, lookup_id: LookupId) -> list[tuple[str, str]]:
    """Return the operators of a graph as AOTAutograd hands it to inductor, each with the line of the program."""
    if (lookup := _graph_lookup(data, lookup_id)) is None:
        return []
    texts = [
        number
        for number, artifact in enumerate(data.summary.artifacts)
        if (artifact.key.epoch, artifact.key.compile_id) == (lookup.epoch, lookup.compile_id)
        and is_aot_graph(artifact.name, backward=lookup.direction == "backward")
    ]
    try:
        graph = read_payload(data, texts[lookup_id.graph]) if len(texts) > lookup_id.graph else ""
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
