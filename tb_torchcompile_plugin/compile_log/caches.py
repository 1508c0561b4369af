"""Which part of its key made a lookup in a compile cache miss, and whose are records without a compile id?

torch writes a key part by part, each with a hash of its own. The parts of a miss are compared with those of the
earlier lookups of the same process; the nearest one shows what changed. Runs inside training: standard library and
protobuf only.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log.compile_rows import WITHHELD, text_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, CompileKey, Direction
from tb_torchcompile_plugin.torch_names import caches as names
from tb_torchcompile_plugin.torch_names.artifacts import GRAPH_STAGE, artifact_name, stage_of
from tb_torchcompile_plugin.torch_names.records import AOT_ROOTS, COMPILE_FILE, DESCRIBER, kind_of

# Limits that keep a summary small; they were not measured.
_COMPARED_LOOKUPS = 32  # that a miss is compared with
_MAX_VALUE_CHARS = 600  # longer values are dumps
_MAX_VALUES = 20  # differences that are stored with their values


@dataclass(slots=True)
class _Lookup:
    compile_key: CompileKey
    key: str
    settings: frozenset[str]  # most parts of a key; the same object wherever they are equal
    parts: dict[str, str]  # name → "hash value"
    items: frozenset[tuple[str, str]]  # of `parts`, to be compared with many others

    def count_differing(self, other: "_Lookup") -> int:
        return _count_differing(other.settings, self.settings) + len(other.items ^ self.items)


class CacheLookups:
    """The lookups of one process, in order."""

    def __init__(self, *, source: bool) -> None:
        """source: keep values, which may quote the user's code."""
        self._source = source
        self._lookups: dict[tuple[str, int], deque[_Lookup]] = defaultdict(
            lambda: deque(maxlen=_COMPARED_LOOKUPS)
        )
        self._settings: dict[frozenset[str], frozenset[str]] = {}
        self._counts: Counter[tuple[int, str, str, int]] = Counter()

    def row(
        self, cache: str, result: str, details: dict[str, Any], key: CompileKey, direction: Direction
    ) -> CacheResult:
        """Return the row of a lookup. Rows of one compile id are numbered as its graphs are."""
        row = CacheResult(cache=cache, result=result, key=text_of(details.get("key")))
        # A bypass says why, in words that may quote the graph.
        if reason := text_of(details.get("cache_bypass_reason")):
            row.reason = reason if self._source else WITHHELD
        elif result == "miss" and (status := text_of(details.get("cache_status_detailed"))):
            row.reason = status
        if details.get("time_saved_ns") is not None:
            row.time_saved_ns = int(details["time_saved_ns"])
        elif details.get("time_saved_ms") is not None:
            row.time_saved_ns = round(float(details["time_saved_ms"]) * 1_000_000)
        if details.get("time_taken_ns") is not None:
            row.time_taken_ns = int(details["time_taken_ns"])
        kind = (key.epoch, key.compile_id, cache, int(direction))
        row.direction, row.graph = direction, self._counts[kind]
        self._counts[kind] += 1
        earlier = self._lookups[cache, direction]
        row.first = not earlier
        lookup = self._lookup(details, key)
        row.parts_told = bool(lookup.settings or lookup.parts)
        if result == "miss":
            self._compare(row, lookup, earlier)
        if result != "bypass":
            earlier.append(lookup)
        return row

    def _lookup(self, details: dict[str, Any], key: CompileKey) -> _Lookup:
        settings, parts = [], {}
        for line in details.get("components") or ():
            if names.is_setting(line):
                settings.append(line)
            elif part := names.part_of(line):
                is_shown = part.name != names.CODE and len(part.value) <= _MAX_VALUE_CHARS
                parts[part.name] = f"{part.hash} {part.value if is_shown else ''}"
        shared = self._settings.setdefault(frozenset(settings), frozenset(settings))
        return _Lookup(key, text_of(details.get("key")), shared, parts, frozenset(parts.items()))

    def _compare(self, row: CacheResult, lookup: _Lookup, earlier: deque[_Lookup]) -> None:
        nearest = next((other for other in reversed(earlier) if other.key == lookup.key), None)
        if nearest is None and row.parts_told:
            comparable = (other for other in reversed(earlier) if other.parts)
            nearest = min(comparable, key=lookup.count_differing, default=None)
        if nearest is None:
            return
        row.nearest.CopyFrom(nearest.compile_key)
        before, now = _differences(nearest, lookup)
        for number, name in enumerate({**before, **now}):
            with_values = self._source and number < _MAX_VALUES
            row.differences.add(
                part=name,
                before=before.get(name, "").partition(" ")[2] if with_values else "",
                now=now.get(name, "").partition(" ")[2] if with_values else "",
            )


@lru_cache(maxsize=64)
def _count_differing(settings: frozenset[str], others: frozenset[str]) -> int:
    """Return how many settings are in one of the two sets: a process has few sets, and compares them for each miss."""
    return len(settings ^ others)


def _differences(first: _Lookup, other: _Lookup) -> tuple[dict[str, str], dict[str, str]]:
    """Return the parts of each lookup that the other one does not have."""
    if first.key == other.key:
        return {}, {}
    before, now = dict(first.items - other.items), dict(other.items - first.items)
    if first.settings is not other.settings:
        before.update(_named(first.settings - other.settings))
        now.update(_named(other.settings - first.settings))
    order = {name: index for index, name in enumerate({**first.parts, **other.parts})}

    def rank(item: tuple[str, str]) -> tuple[int, str]:
        return order.get(item[0], len(order)), item[0]

    return dict(sorted(before.items(), key=rank)), dict(sorted(now.items(), key=rank))


def _named(settings: frozenset[str]) -> dict[str, str]:
    parts = (names.part_of(line) for line in settings)
    return {part.name: f"{part.hash} {part.value[:_MAX_VALUE_CHARS]}" for part in parts if part}


class ProgramCall(NamedTuple):
    """The program's call of torch that a compilation ahead of time is of."""

    function: str
    stack: list[dict[str, Any]]  # the program's, outermost first


class AheadOfTime:
    """Finds whose a record without a compile id is: a package of AOTInductor's, or an export. Gives them ids.

    `aot/0`, `aot/1` … and `export/0` … in the order in which they began in the process. What is written while
    AOTInductor compiles on a thread belongs to its package. Logs of older torch do not say when that begins: there the
    graphs and codes without an id are one package, until another graph follows a code. An export is recognised by the
    program's call of torch.export, and by the number of what describes its inputs, which is new in each.
    """

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._open: dict[int, str] = {}  # thread → the package that is compiled on it
        self._loose = ""  # the package of logs without spans
        self._loose_has_code = False
        self._export: tuple[object, str] = (None, "")  # the last one: by which call, and its id
        self._describers: dict[str, object] = {}
        self.calls: dict[str, ProgramCall] = {}

    def marked(self, name: str, mark: str, compile_id: str, thread: int) -> str:
        """Return whose a mark of a span is. compile_id: as far as is known. Work of compile workers keeps its lane."""
        if compile_id and not names.is_ahead_of_time(compile_id):
            return compile_id
        if name == COMPILE_FILE:
            return ""
        if name in AOT_ROOTS and mark == "B":
            self._open[thread] = self._next(names.AOT)
            return self._open[thread]
        return self._open.pop(thread, "") if name in AOT_ROOTS else compile_id

    def owner(self, metadata: dict[str, Any], kind: str, thread: int, files: dict[int, str]) -> str:
        """Return the id of what the record is of, "" of neither a package nor an export.

        files: torch's numbers of the files.
        """
        stack = metadata.get("stack")
        if not isinstance(stack, list):
            stack = []
        paths = [str(files.get(row.get("filename"), row.get("filename"))) for row in stack]
        export = next((index for index, path in enumerate(paths) if names.is_file_of_export(path)), None)
        owner = self._open.get(thread) or (
            self._exported(metadata, stack, export)
            if export is not None
            else self._package(artifact_name(kind) or kind, metadata)
        )
        if owner and owner not in self.calls and paths:
            of_torch = (index for index, path in enumerate(paths) if names.is_file_of_torch(path))
            call = next(of_torch, len(paths) - 1) if export is None else export
            self.calls[owner] = ProgramCall(str(stack[call].get("name") or ""), stack[:call])
        return owner

    def _package(self, name: str, metadata: dict[str, Any]) -> str:
        dump = metadata.get(name)
        name = f"{name}_{dump['name']}" if isinstance(dump, dict) and dump.get("name") else name
        is_code, is_graph = name in names.CODE_TEXTS, name in names.GRAPH_TEXTS
        if (is_code or is_graph) and (not self._loose or (is_graph and self._loose_has_code)):
            self._loose, self._loose_has_code = self._next(names.AOT), False
        self._loose_has_code = self._loose_has_code or is_code
        return self._loose if is_code or is_graph or stage_of(name) == GRAPH_STAGE else ""

    def _exported(self, metadata: dict[str, Any], stack: list[dict[str, Any]], index: int) -> str:
        """Return the id of an export; one that begins again, as draft export does, is the same one."""
        call = [(row.get("filename"), row.get("line")) for row in stack[:index]]
        details = metadata.get(kind_of(metadata))
        describer = details.get(DESCRIBER) if isinstance(details, dict) else None
        last_call, compile_id = self._export
        is_draft = stack[index].get("name") == names.DRAFT_EXPORT
        has_other_inputs = describer not in (None, self._describers.get(compile_id, describer))
        if last_call != call or (has_other_inputs and not is_draft):
            compile_id = self._next(names.EXPORT)
        self._export = call, compile_id
        if describer is not None:
            self._describers[compile_id] = describer
        return compile_id

    def _next(self, kind: str) -> str:
        compile_id = f"{kind}/{self._numbers[kind]}"
        self._numbers[kind] += 1
        return compile_id
