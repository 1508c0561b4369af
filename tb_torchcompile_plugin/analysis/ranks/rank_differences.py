"""Which ranks of a job compiled other code than the others? A rank that compiles alone makes the others wait.

Ranks are compared by compile id. torch counts these in each process, so equal programs have equal ids.
"""

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
from tb_torchcompile_plugin.torch_names import artifacts

DifferenceKind = Literal["compilation", "cache", "collectives", "execution_order"]
_KIND_OF_ARTIFACT: dict[str, DifferenceKind] = {
    artifacts.COLLECTIVES: "collectives",
    artifacts.EXECUTION_ORDER: "execution_order",
}
_MAX_CHARS = 200  # of a value in a table
_MAX_DIFFERENCES = 3  # in one sentence


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
    kind: DifferenceKind
    epoch: int
    compile_id: str  # "" where the difference is about the whole job
    function: str
    groups: list[RankGroup]  # most ranks first


class RankDifferences(msgspec.Struct, frozen=True):
    """All differences, and the ranks whose compile data was compared."""

    ranks: list[int]
    differences: list[RankDifference]


_Key = tuple[int, str, DifferenceKind]  # (epoch, compile id, kind)


def rank_differences(ranks: Sequence[Rank]) -> RankDifferences:
    """Compare the compile data of ranks; empty for fewer than two."""
    if len(ranks) < 2:
        return RankDifferences([], [])
    facts = {rank.rank: dict(_facts(rank)) for rank in sorted(ranks, key=lambda rank: rank.rank)}
    functions = {key_of(row.key): row.function for rank in ranks for row in rank.data.summary.compilations}
    differences = []
    for key in dict.fromkeys(key for of_rank in facts.values() for key in of_rank):
        groups = _groups(key, facts)
        if len(groups) > 1:
            epoch, compile_id, kind = key
            function = functions.get((epoch, compile_id), "")
            differences.append(RankDifference(kind, epoch, compile_id, function, groups))
    return RankDifferences(sorted(facts), differences)


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


class CompiledDifferently(NamedTuple):
    """Ranks that compiled other code than most, all in the same way."""

    rank_indices: list[int]  # indices of the ranks in the job
    words: str  # "compiled forward (0/1), which the others did not"


_Facts = frozenset[tuple[Key, str, str]]  # (compile id, kind, value)


def compiled_differently(job: Job) -> list[CompiledDifferently]:
    """Return the ranks that differ from most, largest group first.

    Empty where fewer than three ranks have compile data, or fewer than half of them agree.
    """
    facts = {index: row for index, digest in enumerate(job.digests) if (row := digest.of(_digest_facts))}
    # of two ranks that differ neither is the odd one
    if len(facts) < 3:
        return []
    usual, count = Counter(facts.values()).most_common(1)[0]
    if 2 * count <= len(facts):
        return []
    others = grouped((index for index in facts if facts[index] != usual), facts.__getitem__)
    rows = [CompiledDifferently(indices, _words(own, usual)) for own, indices in others.items()]
    return sorted(rows, key=lambda row: -len(row.rank_indices))


def _digest_facts(digest: RankDigest) -> _Facts:
    """Return what a rank compiled; empty without compile data."""
    compiled = compiled_of(digest)  # not kept: there may be thousands of ranks
    if compiled is None:
        return frozenset()
    facts: list[tuple[Key, str, str]] = []
    for key, row in forward_compilations(compiled).items():
        facts.append((key, "failed" if row.HasField("failure") else "compiled", row.function))
        if row.HasField("guards"):
            facts.append((key, "guards", str(row.guards)))
        facts += [(key, cache.cache, f"{number} {cache.result}") for number, cache in enumerate(row.cache)]
    return frozenset(facts)


def _words(own: _Facts, usual: _Facts) -> str:
    keys = sorted({key for key, *_ in own ^ usual})
    words = []
    for key in keys:
        own_values, usual_values = (
            {kind: value for of_key, kind, value in sorted(facts) if of_key == key} for facts in (own, usual)
        )
        words += _compilation_words(key[1], own_values, usual_values)
    more = len(words) - _MAX_DIFFERENCES
    rest = f" and {plural(more, 'more difference')}" if more > 0 else ""
    return ", ".join(words[:_MAX_DIFFERENCES]) + rest


def _compilation_words(compile_id: str, own: dict[str, str], usual: dict[str, str]) -> list[str]:
    """Describe the differences of one compilation; own, usual: value by kind."""
    if "compiled" in own and not usual:
        return [f"compiled {own['compiled'] or 'a function'} ({compile_id}), which the others did not"]
    if not own:
        function = usual.get("compiled") or "a function"
        return [f"did not compile {function} ({compile_id}), which the others did"]
    if "failed" in own and "compiled" in usual:
        return [f"failed to compile {own['failed'] or 'a function'} ({compile_id})"]
    words = []
    for kind in (kind for kind in {**own, **usual} if own.get(kind) != usual.get(kind)):
        value, others = own.get(kind, "none"), usual.get(kind, "none")
        if kind == "guards":
            words.append(f"{compile_id} has {value} guards instead of {others}")
        else:
            had, had_others = (text.partition(" ")[2] or text for text in (value, others))
            words.append(f"{artifacts.title_of_cache(kind)} of {compile_id}: {had} instead of {had_others}")
    return words
