"""Lookups in the compile caches: what each found, and of a miss, which parts of its key are new.

torch tells a key part by part, each with a hash of its own. The parts of a miss are compared with those of the
earlier lookups of the same process; the nearest one says what changed. Runs inside training: standard library and
protobuf only.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tb_torchcompile_plugin.compile_log import compile_rows, prose
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.compile_rows import CompiledFrame, text_of
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, CompileKey, Direction, KeyDifference
from tb_torchcompile_plugin.torch_names import caches as cache_keys
from tb_torchcompile_plugin.torch_names import caches as names
from tb_torchcompile_plugin.torch_names.artifacts import AOT_CODE, WRAPPER_CODE, name_of
from tb_torchcompile_plugin.torch_names.records import AOT_ROOTS, COMPILE_FILE, DESCRIBER, DUMP, kind_of

_REMEMBERED = 32  # lookups that a miss is compared with
_VALUE_CHARS = 600  # longer ones are dumps
_VALUES = 20  # differences that are stored with their values


@dataclass(slots=True)
class _Lookup:
    """settings: the same object wherever they are the same; they are most of a key's parts."""

    compile_key: CompileKey
    key: str
    settings: frozenset[str]
    parts: dict[str, str]  # name → "hash value"
    items: frozenset[tuple[str, str]]  # of `parts`, to be compared with many others


class CacheLookups:
    """The lookups of one process, in order. source: keep values, which may quote the user's code."""

    def __init__(self, *, source: bool) -> None:
        self._source = source
        self._known: dict[tuple[str, int], deque[_Lookup]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._settings: dict[frozenset[str], frozenset[str]] = {}
        self._counts: Counter[tuple[int, str, str, int]] = Counter()

    def row(
        self, cache: str, result: str, details: dict[str, Any], key: CompileKey, direction: Direction
    ) -> CacheResult:
        """One lookup from its record. Rows of one compile id are numbered as its graphs are."""
        row = cache_row(cache, result, details, source=self._source)
        kind = (key.epoch, key.compile_id, cache, int(direction))
        row.direction, row.graph = direction, self._counts[kind]
        self._counts[kind] += 1
        known = self._known[cache, direction]
        row.first = not known
        lookup = self._lookup(details, key)
        row.parts_told = bool(lookup.settings or lookup.parts)
        if result == "miss":
            self._compare(row, lookup, known)
        if result != "bypass":
            known.append(lookup)
        return row

    def _lookup(self, details: dict[str, Any], key: CompileKey) -> _Lookup:
        settings, parts = [], {}
        for line in details.get("components") or ():
            if cache_keys.is_setting(line):
                settings.append(line)
            elif part := cache_keys.part_of(line):
                value = "" if part.name == cache_keys.CODE or len(part.value) > _VALUE_CHARS else part.value
                parts[part.name] = f"{part.hash} {value}"
        same = frozenset(settings)
        settings_of = self._settings.setdefault(same, same)
        return _Lookup(key, text_of(details.get("key")), settings_of, parts, frozenset(parts.items()))

    def _compare(self, row: CacheResult, lookup: _Lookup, known: deque[_Lookup]) -> None:
        nearest = next((other for other in reversed(known) if other.key == lookup.key), None)
        if nearest is None and row.parts_told:
            comparable = [other for other in reversed(known) if other.parts]
            nearest = min(comparable, key=lambda other: _distance(other, lookup), default=None)
        if nearest is None:
            return
        row.nearest.CopyFrom(nearest.compile_key)
        before, now = _differences(nearest, lookup)
        for number, name in enumerate({**before, **now}):
            with_values = self._source and number < _VALUES
            row.differences.append(
                KeyDifference(
                    part=name,
                    before=_value(before.get(name)) if with_values else "",
                    now=_value(now.get(name)) if with_values else "",
                )
            )


def _value(part: str | None) -> str:
    return "" if part is None else part.partition(" ")[2]


def _distance(one: _Lookup, other: _Lookup) -> int:
    return _apart(one.settings, other.settings) + len(one.items ^ other.items)


@lru_cache(maxsize=64)
def _apart(one: frozenset[str], other: frozenset[str]) -> int:
    """A process has few sets of settings, and compares them for each miss."""
    return len(one ^ other)


def _differences(one: _Lookup, other: _Lookup) -> tuple[dict[str, str], dict[str, str]]:
    """The parts of each that the other one has not."""
    if one.key == other.key:
        return {}, {}
    before, now = dict(one.items - other.items), dict(other.items - one.items)
    if one.settings is not other.settings:
        before.update(_named(one.settings - other.settings))
        now.update(_named(other.settings - one.settings))
    order = {name: place for place, name in enumerate({**one.parts, **other.parts})}

    def place(item: tuple[str, str]) -> tuple[int, str]:
        return order.get(item[0], len(order)), item[0]

    return dict(sorted(before.items(), key=place)), dict(sorted(now.items(), key=place))


def _named(settings: frozenset[str]) -> dict[str, str]:
    parts = (cache_keys.part_of(line) for line in settings)
    return {part.name: f"{part.hash} {part.value[:_VALUE_CHARS]}" for part in parts if part}


def cache_row(cache: str, result: str, details: dict[str, Any], *, source: bool) -> CacheResult:
    """What the record itself says. A bypass says why, in words that may quote the graph."""
    row = CacheResult(cache=cache, result=result, key=text_of(details.get("key")))
    if reason := text_of(details.get("cache_bypass_reason")):
        row.reason = reason if source else prose.WITHHELD
    elif result == "miss" and (status := text_of(details.get("cache_status_detailed"))):
        row.reason = status
    if details.get("time_saved_ns") is not None:
        row.time_saved_ns = int(details["time_saved_ns"])
    elif details.get("time_saved_ms") is not None:
        row.time_saved_ns = round(float(details["time_saved_ms"]) * 1_000_000)
    if details.get("time_taken_ns") is not None:
        row.time_taken_ns = int(details["time_taken_ns"])
    return row


# Compilations that torch gives no compile id: packages of AOTInductor, and exports. Here they get one.
# `aot/0`, `aot/1` … and `export/0` … in the order in which they began in the process. What is written while
# AOTInductor compiles on a thread belongs to its package. Logs of older torch do not say when that begins:
# there the graphs and codes without an id are one package, until another graph follows on a code. An export
# is told by the program's call of torch.export, and by the number of what describes its inputs, which is
# new in each.


@dataclass
class Called:
    """The program's call that a compilation ahead of time is of. stack: the program's, outermost first."""

    compile_id: str
    function: str
    stack: list[dict[str, Any]]


class AheadOfTime:
    """Whose a record without a compile id is."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._open: dict[int, str] = {}  # thread → the package that is compiled on it
        self._loose = ""  # the package of logs without spans
        self._loose_is_coded = False
        self._export: tuple[object, str] = (None, "")  # the last one: by which call, and its id
        self._describers: dict[str, object] = {}
        self.calls: dict[str, Called] = {}

    def marked(self, name: str, mark: str, compile_id: str, thread: int) -> str:
        """Whose a mark of a span is. compile_id: as far as is known. What workers do keeps its lane."""
        if compile_id and not names.is_ahead(compile_id):
            return compile_id
        if name == COMPILE_FILE:
            return ""
        if name in AOT_ROOTS and mark == "B":
            self._open[thread] = self._next(names.AOT)
            return self._open[thread]
        return self._open.pop(thread, "") if name in AOT_ROOTS else compile_id

    def owner(self, metadata: dict[str, Any], kind: str, thread: int, files: dict[int, str]) -> str:
        """The id of what the record is of, "" of neither a package nor an export. files: torch's numbers of them."""
        stack = metadata.get("stack")
        paths = _paths(stack, files) if isinstance(stack, list) else []
        place = names.export_call(paths)
        if kind in names.ISSUES:  # of draft export, which tells them without saying where it is
            return self._export[1]
        owner = self._open.get(thread) or (
            self._exported(metadata, stack, place)
            if place is not None
            else self._package(name_of(kind) or kind, metadata)
        )
        if owner and owner not in self.calls and paths:
            self._called(owner, stack, paths, place)
        return owner

    def _package(self, name: str, metadata: dict[str, Any]) -> str:
        dump = metadata.get(name)
        name = f"{name}_{dump['name']}" if isinstance(dump, dict) and dump.get("name") else name
        code, graph = names.is_code(name), names.begins_graph(name)
        if (code or graph) and (not self._loose or (graph and self._loose_is_coded)):
            self._loose, self._loose_is_coded = self._next(names.AOT), False
        self._loose_is_coded = self._loose_is_coded or code
        return self._loose if code or graph or names.follows_graph(name) else ""

    def _exported(self, metadata: dict[str, Any], stack: Any, place: int) -> str:
        """An export that begins again, as draft export does, is the same one."""
        call = [(row.get("filename"), row.get("line")) for row in stack[:place]]
        details = metadata.get(kind_of(metadata))
        describer = details.get(DESCRIBER) if isinstance(details, dict) else None
        known, compile_id = self._export
        if known != call or self._is_another(compile_id, describer, names.is_draft(stack[place])):
            compile_id = self._next(names.EXPORT)
        self._export = call, compile_id
        if describer is not None:
            self._describers[compile_id] = describer
        return compile_id

    def _is_another(self, compile_id: str, describer: object, draft: bool) -> bool:
        known = self._describers.get(compile_id)
        return not draft and describer is not None and known is not None and describer != known

    def _called(self, owner: str, stack: Any, paths: list[str], export: int | None) -> None:
        place = export if export is not None else names.torch_call(paths)
        place = len(paths) - 1 if place is None else place
        self.calls[owner] = Called(owner, str(stack[place].get("name") or ""), stack[:place])

    def _next(self, kind: str) -> str:
        compile_id = f"{kind}/{self._numbers[kind]}"
        self._numbers[kind] += 1
        return compile_id


def _paths(stack: list[dict[str, Any]], files: dict[int, str]) -> list[str]:
    return [str(files.get(row.get("filename"), row.get("filename"))) for row in stack]  # type: ignore[arg-type]


def add_code(frame: CompiledFrame, record: Record) -> None:
    """A dump of AOTInductor: it writes the code of a graph in two texts, in older torch in one."""
    details = record.metadata[DUMP]
    name, graphs = f"{DUMP}_{details.get('name')}", frame.graphs
    if name in WRAPPER_CODE:
        file = str(details.get("filename") or "")
        graphs.append(pb.Graph(key=frame.key, output_code_file=file, index=len(graphs)))
    if name in AOT_CODE and graphs:
        known = {kernel.name for kernel in graphs[-1].kernels}
        kernels = prose.generated_kernels(record.payload or "")
        graphs[-1].kernels.extend(kernel for kernel in kernels if kernel.name not in known)
    if name in WRAPPER_CODE:
        while frame.kernel_infos:
            compile_rows.add_kernel_info(graphs[-1], frame.kernel_infos.pop(0))


def export_issue(
    record: Record, key: pb.CompileKey, stack: list[pb.Frame], *, source: bool
) -> pb.ExportIssue:
    """A record of one of ISSUES. stack: of the user's code."""
    kind = kind_of(record.metadata)
    details = record.metadata[kind]
    row = pb.ExportIssue(key=key, kind=kind, stack=stack)
    row.subject = str(details.get("op") or details.get("expr") or "")
    value = details.get("reason") or details.get("result")
    if source and value is not None:
        row.details = str(value)
    return row
