"""Which ranks of a job compiled other code than the others? A rank that compiles alone makes the others wait.

Ranks are compared by compile id. torch counts these in each process, so equal programs have equal ids.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.formatting import listed_numbers, plural
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names import artifacts

DifferenceKind = Literal["compilation", "cache", "collectives", "execution_order"]
_KIND_OF_ARTIFACT: dict[str, DifferenceKind] = {
    artifacts.COLLECTIVES: "collectives",
    artifacts.EXECUTION_ORDER: "execution_order",
}
_MAX_CHARS = 200  # of a value in a table


class Rank(NamedTuple):
    """What one rank compiled."""

    rank: int
    data: CompileData


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks that agree, and on what."""

    ranks: list[int]
    value: str


class RankDifference(msgspec.Struct, frozen=True):
    """What ranks disagree on; among those that compiled it, unless it is about whether they did."""

    # compilation: whether it was compiled; cache: the results of its lookups; collectives: those in its code;
    # execution_order: the compile ids that ran. The last two only where torch recorded them.
    kind: Annotated[DifferenceKind, column_head("Difference in")]
    epoch: int
    compile_id: str  # "" where the difference is about the whole job
    function: str
    groups: list[RankGroup]  # most ranks first
    by_rank: Annotated[str, column_head(grow=True)]  # the same in words


class RankDifferences(msgspec.Struct, frozen=True):
    """All differences, and the ranks whose compile data was compared."""

    sentences: tuple[str, ...]
    ranks: list[int]
    differences: list[RankDifference]


_Key = tuple[int, str, DifferenceKind]  # (epoch, compile id, kind)


def rank_differences(ranks: Sequence[Rank]) -> RankDifferences:
    """Compare the compile data of ranks; empty for fewer than two."""
    if len(ranks) < 2:
        return RankDifferences((), [], [])
    facts = {rank.rank: dict(_facts(rank)) for rank in sorted(ranks, key=lambda rank: rank.rank)}
    functions = {key_of(row.key): row.function for rank in ranks for row in rank.data.summary.compilations}
    differences = []
    for key in dict.fromkeys(key for of_rank in facts.values() for key in of_rank):
        groups = _groups(key, facts)
        if len(groups) > 1:
            epoch, compile_id, kind = key
            function = functions.get((epoch, compile_id), "")
            differences.append(
                RankDifference(kind, epoch, compile_id, function, groups, "; ".join(map(_words, groups)))
            )
    count = plural(len(differences), "difference") if differences else "No difference"
    sentence = f"{count} between what the {len(facts)} ranks compiled."
    slow = ("The other ranks wait for a rank that compiles alone.",) if differences else ()
    return RankDifferences((sentence, *slow), sorted(facts), differences)


def _words(group: RankGroup) -> str:
    """Return "ranks 0, 1: compiled"."""
    return f"{'ranks' if len(group.ranks) > 1 else 'rank'} {listed_numbers(group.ranks)}: {group.value}"


def _facts(rank: Rank) -> Iterator[tuple[_Key, str]]:
    for row in rank.data.summary.compilations:
        if row.direction == FORWARD:
            key = key_of(row.key)
            yield (*key, "compilation"), "failed" if row.HasField("failure") else "compiled"
            if row.cache:
                lookups = ", ".join(f"{lookup.cache} {lookup.result}" for lookup in row.cache)
                yield (*key, "cache"), lookups
    for number, artifact in enumerate(rank.data.summary.artifacts):
        if kind := _KIND_OF_ARTIFACT.get(artifact.name):
            yield (*key_of(artifact.key), kind), _listed(rank.data, number)


def _listed(data: CompileData, number: int) -> str:
    """Return what a JSON artifact lists: operators, or graphs by their compile ids."""
    try:
        decoded: Any = msgspec.json.decode(read_payload(data, number))
    except (UserError, msgspec.DecodeError):
        return "could not be read"
    rows = decoded.get(artifacts.EXECUTED) if isinstance(decoded, dict) else decoded
    if not isinstance(rows, list):
        return str(rows)
    names = (str(row.get("compile_id") if isinstance(row, dict) else row) for row in rows)
    return ", ".join(names) or "none"


def _groups(key: _Key, facts: dict[int, dict[_Key, str]]) -> list[RankGroup]:
    groups: dict[str, list[int]] = {}
    epoch, compile_id, _ = key
    compiled: _Key = (epoch, compile_id, "compilation")
    absent = "not compiled" if key == compiled else "none"
    for rank, of_rank in facts.items():
        if key == compiled or not compile_id or compiled in of_rank:
            groups.setdefault(of_rank.get(key, absent), []).append(rank)
    return sorted(
        (RankGroup(ranks, value[:_MAX_CHARS]) for value, ranks in groups.items()),
        key=lambda group: (-len(group.ranks), group.ranks),
    )
