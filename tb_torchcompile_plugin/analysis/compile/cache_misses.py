"""Why did a lookup miss where another process has the same frame? The first part of its key that differs.

torch records the parts of a key with a hash each. Of the graph's code it records the hash alone; the graphs of both
processes then show which line differs.
"""

import json
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from tb_torchcompile_plugin.analysis.compile import cache_lookups
from tb_torchcompile_plugin.analysis.compile.caches import CacheLookup
from tb_torchcompile_plugin.analysis.formatting import at_line, plural
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import KEY_SETTINGS, NO_PLACE, NODE_PLACE, is_aot_graph
from tb_torchcompile_plugin.torch_names.caches import CODE, KeyPart, part_of, title_of

_DifferingPart: TypeAlias = tuple[str, KeyPart | None, KeyPart | None]  # name, here, in the other process

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


def differences(starts: cache_lookups.Starts) -> dict[int, KeyMismatch]:
    """Map misses, by their index in `timed_lookups`, to the difference from the nearest process with this lookup."""
    data = starts.own.data
    lookups = data.of(cache_lookups.timed_lookups)
    rows = {}
    for lookup_id, number in data.of(cache_lookups.lookup_numbers).items():
        lookup, _ = lookups[number]
        if lookup.result == "miss" and (nearest := _nearest(starts, lookup_id, lookup)):
            rows[number] = nearest
    return rows


def _nearest(
    starts: cache_lookups.Starts, lookup_id: cache_lookups.LookupId, lookup: CacheLookup
) -> KeyMismatch | None:
    """Prefer a process with the same key, then the one that differs in the fewest parts."""
    own = starts.own
    candidates: list[tuple[int, KeyMismatch]] = []
    for other in starts.others:
        found = _lookup(other.data, lookup_id)
        if found is None:
            continue
        environment, other_environment = own.data.summary.environment, other.data.summary.environment
        had_entry = other_environment.written_ns <= environment.recording_start_ns
        if found.result == "hit":
            had_entry = other_environment.recording_start_ns < environment.written_ns
        process = (other.name, other.run == own.run, bool(had_entry))
        if found.key == lookup.key:
            what = _same_key(own, other, found.result)
            rank = _LAST if what == _COMPILED_FIRST else 0
            candidates.append((rank, KeyMismatch(what, *process)))
        elif parts := _differing_parts(own.data, other.data, lookup_id):
            what = _describe(parts, own.data, other.data, lookup_id)
            candidates.append((len(parts), KeyMismatch(what, *process)))
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


def _lookup(data: CompileData, lookup_id: cache_lookups.LookupId) -> CacheLookup | None:
    number = data.of(cache_lookups.lookup_numbers).get(lookup_id)
    return None if number is None else data.of(cache_lookups.timed_lookups)[number][0]


def _same_key(own: cache_lookups.Start, other: cache_lookups.Start, result: str) -> str:
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


def _differing_parts(
    own: CompileData, other: CompileData, lookup_id: cache_lookups.LookupId
) -> list[_DifferingPart]:
    """Return the parts that differ, the code of the graph first.

    AOTAutograd's keys have no recorded parts; those of the FX graph inside, which they come from, stand for them.
    """
    parts, other_parts = (_parts(data, lookup_id) for data in (own, other))
    if not parts or not other_parts:
        return []
    rows = [(name, parts.get(name), other_parts.get(name)) for name in {**parts, **other_parts}]
    differing = [row for row in rows if not (row[1] and row[2] and row[1].hash == row[2].hash)]
    return sorted(differing, key=lambda row: row[0] != CODE)


def _parts(data: CompileData, lookup_id: cache_lookups.LookupId) -> dict[str, KeyPart]:
    lookup = _lookup(data, lookup_id._replace(cache=cache_lookups.FX))
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


def _describe(
    parts: list[_DifferingPart], own: CompileData, other: CompileData, lookup_id: cache_lookups.LookupId
) -> str:
    name, part, other_part = parts[0]
    more = f", and {plural(len(parts) - 1, 'more part')} of the key" if len(parts) > 1 else ""
    if name == CODE:
        line, operators = _code_line(own, other, lookup_id)
        return f"{title_of(name)}{line}{more}{operators}"
    values = [
        "not there"
        if key_part is None
        else key_part.value[:_MAX_VALUE_CHARS] + ("…" if len(key_part.value) > _MAX_VALUE_CHARS else "")
        for key_part in (part, other_part)
    ]
    comparison = f" is {values[0]} here, and {values[1]} there" if any(values) else ""
    return f"{title_of(name)}{comparison}{more}"


def _code_line(own: CompileData, other: CompileData, lookup_id: cache_lookups.LookupId) -> tuple[str, str]:
    """Return the first line of the program whose operators differ, and these operators."""
    operators, other_operators = (_graph(data, lookup_id) for data in (own, other))
    if not operators or not other_operators:
        return "", ""
    line = ""
    for (text, line_of_node), (other_text, _) in zip_longest(operators, other_operators, fillvalue=("", "")):
        line = line_of_node or line
        if text != other_text:
            # Behind "  #", as torch quotes code, so that it stays out of files without code.
            quoted = f"  # {text or 'nothing'} here, {other_text or 'nothing'} there"
            return f" at {line}" if line else "", quoted
    return "", ""


def _graph(data: CompileData, lookup_id: cache_lookups.LookupId) -> list[tuple[str, str]]:
    """Return the operators of a graph as AOTAutograd hands it to inductor, each with the line of the program."""
    lookup = _lookup(data, lookup_id._replace(cache=cache_lookups.FX))
    if lookup is None:
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
