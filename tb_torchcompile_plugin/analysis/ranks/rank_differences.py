"""Which ranks of a job compiled other code than the others? A rank that compiles alone makes the others wait.

Ranks are compared by compile id. torch counts these in each process, so equal programs have equal ids.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from tb_torchcompile_plugin.analysis.formatting import column_head, plural
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


class RankDifference(msgspec.Struct, frozen=True):
    """What some ranks have that others have not; among those that compiled it, unless it is about whether they did."""

    # compilation: whether it was compiled; cache: the results of its lookups; collectives: those in its code;
    # execution_order: the compile ids that ran. The last two only where torch recorded them.
    kind: Annotated[DifferenceKind, column_head("Difference in")]
    epoch: int
    compile_id: str  # "" where the difference is about the whole job
    function: str
    ranks: list[int]  # the ranks that agree; most ranks first
    value: Annotated[str, column_head(grow=True, wrap=True)]  # on what


class RankDifferences(msgspec.Struct, frozen=True):
    """All differences, and the ranks whose compile data was compared."""

    sentences: tuple[str, ...]
    ranks: list[int]
    differences: list[RankDifference]


_Key = tuple[int, str, DifferenceKind]  # (epoch, compile id, kind)


def rank_differences(ranks: Mapping[int, CompileData]) -> RankDifferences:
    """Return what ranks compiled differently; empty for fewer than two ranks."""
    if len(ranks) < 2:
        return RankDifferences((), [], [])
    facts = {rank: dict(_facts(ranks[rank])) for rank in sorted(ranks)}
    functions = {
        key_of(row.key): row.function for data in ranks.values() for row in data.summary.compilations
    }
    rows, different = [], 0
    for key in dict.fromkeys(key for of_rank in facts.values() for key in of_rank):
        if len(groups := _groups(key, facts)) > 1:
            different += 1
            (epoch, compile_id, kind), function = key, functions.get(key[:2], "")
            rows += [RankDifference(kind, epoch, compile_id, function, *group) for group in groups]
    there_are = "There is" if different == 1 else "There are"
    count = plural(different, "difference") if different else "no differences"
    sentence = f"{there_are} {count} between what the {len(facts)} ranks compiled."
    slow = ("The other ranks wait for a rank that compiles alone.",) if different else ()
    return RankDifferences((sentence, *slow), sorted(facts), rows)


def _facts(data: CompileData) -> Iterator[tuple[_Key, str]]:
    for row in data.summary.compilations:
        if row.direction == FORWARD:
            key = key_of(row.key)
            yield (*key, "compilation"), "failed" if row.HasField("failure") else "compiled"
            if row.cache:
                yield (*key, "cache"), ", ".join(f"{lookup.cache} {lookup.result}" for lookup in row.cache)
    for number, artifact in enumerate(data.summary.artifacts):
        if kind := _KIND_OF_ARTIFACT.get(artifact.name):
            yield (*key_of(artifact.key), kind), _listed(data, number)


def _listed(data: CompileData, number: int) -> str:
    """Return what a JSON artifact lists: operators, or graphs by their compile ids."""
    try:
        decoded: Any = msgspec.json.decode(read_payload(data, number))
    except (UserError, msgspec.DecodeError, RecursionError):
        return "could not be read"
    rows = decoded.get(artifacts.EXECUTED) if isinstance(decoded, dict) else decoded
    if not isinstance(rows, list):
        return str(rows)
    names = (str(row.get("compile_id") if isinstance(row, dict) else row) for row in rows)
    return ", ".join(names) or "none"


def _groups(key: _Key, facts: dict[int, dict[_Key, str]]) -> list[tuple[list[int], str]]:
    """Return the ranks that agree, and on what; most ranks first."""
    groups: dict[str, list[int]] = {}
    compiled: _Key = (*key[:2], "compilation")
    absent = "not compiled" if key == compiled else "none"
    for rank, of_rank in facts.items():
        if key == compiled or not key[1] or compiled in of_rank:
            groups.setdefault(of_rank.get(key, absent), []).append(rank)
    agreed = ((ranks, value[:_MAX_CHARS]) for value, ranks in groups.items())
    return sorted(agreed, key=lambda group: (-len(group[0]), group[0]))
