"""Which ranks of one job were compiled otherwise than the rest? One that compiles alone makes all others wait for it.

Ranks are compared by compile id. torch counts them in each process, so equal programs have equal ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names.artifacts import COLLECTIVES, EXECUTED, EXECUTION_ORDER

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
