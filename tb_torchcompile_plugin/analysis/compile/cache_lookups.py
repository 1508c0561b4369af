"""What did each lookup in a compile cache find, what did it cost or save, and why did it miss?

A hit records how long creating its entry had taken; for a miss the same time is known, for FX graphs from torch itself,
for AOTAutograd from its timed function. An entry of AOTAutograd holds its FX graphs: only the outer one counts.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from tb_torchcompile_plugin.analysis.formatting import column_head, plural
from tb_torchcompile_plugin.compile_log import record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult as CacheMessage
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, PhaseSpan
from tb_torchcompile_plugin.profile.columns import to_seconds
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.artifacts import cache_lookup, title_of_cache
from tb_torchcompile_plugin.torch_names.caches import CODE, is_input, order_of, title_of
from tb_torchcompile_plugin.torch_names.records import AOT_COMPILE, FX_COMPILES

_NumberedLookup: TypeAlias = tuple[int, CacheMessage]  # its index among all lookups, and the lookup

_AOT, _FX = "aotautograd", "fx_graph"
FX_GRAPH_CACHE = title_of_cache(_FX)
_MAX_PARTS = 4  # parts of a key named in one sentence
_MAX_VALUE_CHARS = 40  # longer values are left out of a sentence


class CacheResult(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup in a compile cache."""

    cache: str
    result: str
    cache_key: Annotated[str, column_head(hidden=True)] = ""
    direction: Annotated[record.Direction | None, column_head(hidden=True)] = None
    # Number among the lookups of this cache and direction in its compilation (DDP makes several).
    graph: Annotated[int | None, column_head(hidden=True)] = None
    # Reason for a miss or bypass, in words.
    why: Annotated[str | None, column_head("Reason", grow=True, wrap=True)] = None
    time_saved_s: Annotated[float | None, column_head("Time saved")] = None


class KeyDifference(NamedTuple):
    """A part of a key that differs from another key."""

    part: str  # torch's name of the part
    title: str
    before: str  # "" where unknown
    now: str


class CacheLookup(CacheResult, frozen=True, kw_only=True):
    """A lookup with its compilation."""

    compile_id: str
    epoch: int
    function: Annotated[str, column_head(hidden=True)]
    file: str
    line: int | None
    # Time to make the entry after a miss; None where unknown.
    spent_s: Annotated[float | None, column_head("Time to create")] = None
    # Id of the text that records the lookup.
    artifact: Annotated[int | None, column_head(hidden=True)] = None
    # The first part of the key that differs from the key of this frame in `than`, another run or rank of the logdir.
    differs: Annotated[str | None, column_head("What differs", grow=True, wrap=True)] = None
    than: Annotated[str | None, column_head("Compared with")] = None


def compilations_in_order(data: CompileData) -> list[Compilation]:
    """Return the messages of all compilations in order of time."""
    return sorted(data.summary.compilations, key=lambda row: (row.start_ns, row.key.epoch))


def cache_lookups(data: CompileData) -> list[CacheLookup]:
    """Return the lookups of a process that torch recorded one by one, compilation by compilation."""
    forward, spent = record.forward_compilations(data.summary), data.of(_spent_ns)
    texts = grouped(
        enumerate(data.summary.artifacts), lambda text: (record.key_of(text[1].key), text[1].name)
    )
    unused_texts = {key: iter([number for number, _ in group]) for key, group in texts.items()}
    rows = []
    for number, (row, message) in enumerate(data.of(_lookups)):
        text_key = record.key_of(row.key), cache_lookup(message.cache, message.result)
        frame = forward.get(record.key_of(row.key)) or Compilation()
        fields = msgspec.structs.asdict(cache_result(row, message)) | {
            "cache": title_of_cache(message.cache),
            "compile_id": row.key.compile_id,
            "epoch": row.key.epoch,
            "function": frame.function,
            "file": frame.file,
            "line": frame.line or None,
            "spent_s": to_seconds(spent[number]) if number in spent else None,
            "artifact": next(unused_texts.get(text_key, iter(())), None),
        }
        rows.append(CacheLookup(**fields))
    return rows


def _lookups(data: CompileData) -> list[tuple[Compilation, CacheMessage]]:
    return [(row, lookup) for row in data.of(compilations_in_order) for lookup in row.cache]


def cache_result(row: Compilation, lookup: CacheMessage) -> CacheResult:
    """Return one lookup of a compilation."""
    return CacheResult(
        cache=lookup.cache,
        result=lookup.result,
        cache_key=lookup.key,
        direction=record.direction_of(row.direction or lookup.direction),
        graph=record.optional_number(lookup, "graph"),
        why=_why(lookup),
        time_saved_s=record.optional_seconds(lookup, "time_saved_ns"),
    )


def first_lookups(data: CompileData) -> list[list[CacheMessage]]:
    """Return by compilation the first lookup of each key: a process finds what it stored itself with any caches."""
    seen: set[tuple[str, str]] = set()
    rows = []
    for row in data.of(compilations_in_order):
        rows.append([lookup for lookup in row.cache if (lookup.cache, lookup.key) not in seen])
        seen.update((lookup.cache, lookup.key) for lookup in row.cache)
    return rows


def saved_ns(lookups: Iterable[CacheMessage]) -> list[int]:
    """Return the times that the lookups of one compilation saved.

    A hit of AOTAutograd's cache includes those of the FX graphs in it, so these count only without one.
    """
    timed = [lookup for lookup in lookups if lookup.HasField("time_saved_ns")]
    outer = [lookup for lookup in timed if lookup.cache == _AOT]
    return [lookup.time_saved_ns for lookup in outer or timed]


def would_save_ns(data: CompileData) -> int | None:
    """Return the most that hits instead of all misses could skip (a hit has to load its entry).

    None without a miss whose time is known. Of a compilation the outermost misses count.
    """
    spent, times = data.of(_spent_ns), []
    for misses in data.of(_misses).values():
        outer = [number for number, lookup in misses if lookup.cache == _AOT]
        numbers = outer or [number for number, _ in misses]
        times += [spent[number] for number in numbers if number in spent]
    return sum(times) if times else None


def _misses(data: CompileData) -> dict[record.Key, list[_NumberedLookup]]:
    """Group the misses by compilation, each with its index in `cache_lookups`."""
    misses: dict[record.Key, list[_NumberedLookup]] = {}
    for number, (row, lookup) in enumerate(data.of(_lookups)):
        if lookup.result == "miss":
            misses.setdefault(record.key_of(row.key), []).append((number, lookup))
    return misses


def _spent_ns(data: CompileData) -> dict[int, int]:
    """Map misses to the time (ns) that making the entry took, by their index in `cache_lookups`."""
    timed = (span for span in data.summary.spans if span.name == AOT_COMPILE or span.name in FX_COMPILES)
    spans = grouped(timed, lambda span: record.key_of(span.key))
    spent = (_spent_by_compilation(misses, spans.get(key, [])) for key, misses in data.of(_misses).items())
    return {number: ns for of_compilation in spent for number, ns in of_compilation.items()}


def _spent_by_compilation(misses: list[_NumberedLookup], spans: list[PhaseSpan]) -> dict[int, int]:
    """Match the misses of one compilation with its timed functions; both are in order of time."""
    graphs = [(number, row) for number, row in misses if row.cache == _FX]
    fx_spans = [span for span in spans if span.name in FX_COMPILES]
    taken = [row.time_taken_ns if row.HasField("time_taken_ns") else None for _, row in graphs]
    if len(fx_spans) == len(graphs):
        taken = [span.duration_ns if ns is None else ns for ns, span in zip(taken, fx_spans)]
    spent = {number: ns for (number, _), ns in zip(graphs, taken) if ns is not None}
    outer = [number for number, row in misses if row.cache == _AOT]
    aot_spans = [span for span in spans if span.name == AOT_COMPILE]
    if not outer or len(aot_spans) != len(outer):
        return spent
    spent.update((number, span.duration_ns) for number, span in zip(outer, aot_spans))
    aot_end = max(span.start_ns + span.duration_ns for span in aot_spans)
    # A graph behind AOTAutograd's own work is its backward, compiled when that first ran. The entry is stored then.
    if any(span.start_ns >= aot_end for span in fx_spans):
        spent[outer[0]] += sum(ns for (_, row), ns in zip(graphs, taken) if row.direction and ns is not None)
    return spent


def _why(lookup: CacheMessage) -> str | None:
    """Explain a miss or a bypass in a sentence; None for a hit."""
    if lookup.result == "hit":
        return None
    if lookup.result == "bypass":
        return f"The cache was bypassed: {lookup.reason or 'torch gives no reason'}"
    if lookup.reason == "guard_miss":
        return "An entry has this key, but its guards on symbolic shapes fail for these sizes"
    if not lookup.HasField("nearest") and lookup.first:
        direction = record.direction_of(lookup.direction)
        return f"The cache has no entry for the first {direction} graph of this process"
    if not lookup.HasField("nearest"):
        fx_graph = ": see the FX graph cache" if lookup.cache == _AOT else ""
        return f"The cache has no entry with its key. torch does not record the parts of this key{fx_graph}"
    epoch = lookup.nearest.epoch
    nearest = lookup.nearest.compile_id + (f" (after reset {epoch})" if epoch else "")
    if not lookup.differences:
        return f"The key is that of {nearest}, whose entry could not be used or was not stored yet"
    rows = [difference(row.part, row.before, row.now) for row in lookup.differences]
    rows.sort(key=lambda row: order_of(row.part))
    return f"New key. The nearest key, of {nearest}, differs in {listed(rows)}"


def listed(differences: Sequence[KeyDifference]) -> str:
    """List the first parts with their values where these are short, all inputs as one.

    Code is last, behind "  #", as torch quotes it, so that it stays out of files without code.
    """
    inputs = plural(sum(is_input(row.part) for row in differences), "input")
    phrases = list(dict.fromkeys(inputs if is_input(row.part) else _phrase(row) for row in differences))
    more = len(phrases) - _MAX_PARTS
    rest = f" and {plural(more, 'more part')}" if more > 0 else ""
    code = next(
        (f"  # {row.before} → {row.now}" for row in differences if row.part == CODE and row.before), ""
    )
    return ", ".join(phrases[:_MAX_PARTS]) + rest + code


def _phrase(row: KeyDifference) -> str:
    is_short = row.before and row.now and max(len(row.before), len(row.now)) <= _MAX_VALUE_CHARS
    return f"{row.title} ({row.before} → {row.now})" if is_short and row.part != CODE else row.title


def difference(part: str, before: str, now: str) -> KeyDifference:
    """Reduce two texts `Name(field=value, …)` to the fields that differ; keep other texts as they are."""
    fields_before, fields_now = _fields(before), _fields(now)
    if fields_before and fields_now:
        either = {**fields_before, **fields_now}
        names = [name for name in either if fields_before.get(name) != fields_now.get(name)]
        before, now = (
            ", ".join(f"{name}={fields[name]}" for name in names if name in fields)
            for fields in (fields_before, fields_now)
        )
    return KeyDifference(part, title_of(part), before, now)


def _fields(text: str) -> dict[str, str]:
    """Split `Name(field=value, …)` at the commas outside of all brackets; {} for any other text."""
    match = re.match(r"\w+\((.*)\)$", text, re.DOTALL)
    if not match:
        return {}
    depth, start, pieces = 0, 0, []
    for index, letter in enumerate(match[1]):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            pieces.append(match[1][start:index])
            start = index + 1
    pairs = (piece.strip().partition("=") for piece in [*pieces, match[1][start:]])
    return {name: value for name, equals, value in pairs if equals}
