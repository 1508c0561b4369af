"""Which ranks of one job were compiled otherwise than the rest? One that compiles alone makes all others wait for it.

Ranks are compared by compile id. torch counts them in each process, so equal programs have equal ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, compiled_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import (
    COLLECTIVES,
    EXECUTED,
    EXECUTION_ORDER,
    title_of_cache,
)

DifferenceKind = Literal["compilation", "cache", "collectives", "execution_order"]
_TEXTS: dict[str, DifferenceKind] = {COLLECTIVES: "collectives", EXECUTION_ORDER: "execution_order"}
_ABSENT = "not compiled"
_TOLD_CHARS = 200


class Rank(NamedTuple):
    """What one rank compiled."""

    rank: int
    data: CompileData


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks that agree, and on what."""

    ranks: list[int]
    value: str


class RankDifference(msgspec.Struct, frozen=True):
    """Most ranks first. compilation: whether it was compiled. cache: what its lookups found. collectives: which ones
    its code calls, and execution_order: which compile ids ran, in order; these two where torch recorded them.

    Only ranks that compiled `compile_id` are compared for the last three; it is empty where they are of the whole job.
    """

    kind: DifferenceKind
    epoch: int
    compile_id: str
    function: str
    groups: list[RankGroup]


class RankDifferences(msgspec.Struct, frozen=True):
    """`ranks`: those whose compile data was compared."""

    ranks: list[int]
    differences: list[RankDifference]


class _Key(NamedTuple):
    epoch: int
    compile_id: str
    kind: DifferenceKind


def rank_differences(ranks: Sequence[Rank]) -> RankDifferences:
    """Empty lists where there are fewer than two ranks."""
    if len(ranks) < 2:
        return RankDifferences([], [])
    facts = {rank.rank: dict(_facts(rank)) for rank in sorted(ranks, key=lambda rank: rank.rank)}
    functions = {key_of(row.key): row.function for rank in ranks for row in rank.data.summary.compilations}
    differences = []
    for key in dict.fromkeys(key for known in facts.values() for key in known):
        groups = _groups(key, facts)
        if len(groups) > 1:
            function = functions.get((key.epoch, key.compile_id), "")
            differences.append(RankDifference(key.kind, key.epoch, key.compile_id, function, groups))
    return RankDifferences(sorted(facts), differences)


def _facts(rank: Rank) -> Iterator[tuple[_Key, str]]:
    for row in rank.data.summary.compilations:
        if row.direction == FORWARD:
            key = key_of(row.key)
            yield _Key(*key, "compilation"), "failed" if row.HasField("failure") else "compiled"
            if row.cache:
                yield _Key(*key, "cache"), ", ".join(f"{one.cache} {one.result}" for one in row.cache)
    for number, artifact in enumerate(rank.data.summary.artifacts):
        if artifact.name in _TEXTS:
            yield _Key(*key_of(artifact.key), _TEXTS[artifact.name]), _list(rank.data, number)


def _list(data: CompileData, number: int) -> str:
    """What a JSON text lists: operators, or graphs by their compile ids."""
    try:
        decoded: Any = msgspec.json.decode(read_payload(data, number))
    except (UserError, msgspec.DecodeError):
        return "could not be read"
    rows = decoded.get(EXECUTED) if isinstance(decoded, dict) else decoded
    if not isinstance(rows, list):
        return str(rows)
    names = (str(row.get("compile_id") if isinstance(row, dict) else row) for row in rows)
    return ", ".join(names) or "none"


def _groups(key: _Key, facts: dict[int, dict[_Key, str]]) -> list[RankGroup]:
    groups: dict[str, list[int]] = {}
    compiled = key._replace(kind="compilation")
    for rank, known in facts.items():
        if key.kind == "compilation" or not key.compile_id or compiled in known:
            groups.setdefault(known.get(key, _ABSENT if key == compiled else "none"), []).append(rank)
    return sorted(
        (RankGroup(ranks, value[:_TOLD_CHARS]) for value, ranks in groups.items()),
        key=lambda group: (-len(group.ranks), group.ranks),
    )


# Which of many ranks compiled otherwise than most? Told once for all that differ in the same way.


_DIFFERENCES = 3  # that one sentence tells

_Facts = frozenset[tuple[Key, str, str]]  # what holds of a compilation: (compile id, kind, value)


class CompiledOtherwise(NamedTuple):
    """Ranks by place, and how they differ: "recompiled forward as 0/1, which others did not"."""

    places: list[int]
    words: str


def compiled_otherwise(job: Job) -> list[CompiledOtherwise]:
    """Most ranks first; [] where fewer than three tell what they compiled, or no most of them agree."""
    facts = {place: one.of(_digest_facts) for place, one in enumerate(job.digests)}
    known = {place: one for place, one in facts.items() if one}
    if len(known) < 3:
        return []
    usual, count = Counter(known.values()).most_common(1)[0]
    if 2 * count <= len(known):
        return []
    others = grouped((place for place, one in known.items() if one != usual), lambda place: known[place])
    rows = [CompiledOtherwise(places, _words(mine, usual)) for mine, places in others.items()]
    return sorted(rows, key=lambda row: -len(row.places))


def _digest_facts(one: RankDigest) -> _Facts:
    """Empty where nothing tells."""
    compiled = compiled_of(one)  # of thousands of ranks none is kept whole
    if compiled is None:
        return frozenset()
    facts: list[tuple[Key, str, str]] = []
    for key, row in forward_compilations(compiled).items():
        facts.append((key, "failed" if row.HasField("failure") else "compiled", row.function))
        if row.HasField("guards"):
            facts.append((key, "guards", str(row.guards)))
        facts += [(key, cache.cache, f"{number} {cache.result}") for number, cache in enumerate(row.cache)]
    return frozenset(facts)


def _words(mine: _Facts, usual: _Facts) -> str:
    """What they have of their own first."""
    keys = sorted({key for key, *_ in mine ^ usual})
    said = [words for key in keys for words in _of_one(key, _by_kind(mine, key), _by_kind(usual, key))]
    more = len(said) - _DIFFERENCES
    return ", ".join(said[:_DIFFERENCES]) + (f" and {plural(more, 'more difference')}" if more > 0 else "")


def _by_kind(facts: _Facts, key: Key) -> dict[str, str]:
    return {kind: value for at, kind, value in sorted(facts) if at == key}


def _of_one(key: Key, mine: dict[str, str], usual: dict[str, str]) -> list[str]:
    """Of one compilation."""
    name = key[1]
    if "compiled" in mine and not usual:
        return [f"compiled {mine['compiled'] or 'a function'} ({name}), which the others did not"]
    if not mine:
        return [f"did not compile {usual.get('compiled') or 'a function'} ({name}), which the others did"]
    if "failed" in mine and "compiled" in usual:
        return [f"failed to compile {mine['failed'] or 'a function'} ({name})"]
    different = [kind for kind in {**mine, **usual} if mine.get(kind) != usual.get(kind)]
    return [_difference(kind, name, mine.get(kind, "none"), usual.get(kind, "none")) for kind in different]


def _difference(kind: str, name: str, mine: str, usual: str) -> str:
    if kind == "guards":
        return f"{name} has {mine} guards instead of {usual}"
    had, others = (value.partition(" ")[2] or value for value in (mine, usual))
    return f"{title_of_cache(kind)} of {name}: {had} instead of {others}"
