"""Which of many ranks compiled otherwise than most? Told once for all that differ in the same way."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.words import plural
from tb_torchcompile_plugin.compile_log.record import Key, forward_compilations
from tb_torchcompile_plugin.job.digest.rank_digest import RankDigest, compiled_of
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache

_DIFFERENCES = 3  # that one sentence tells

_Facts = frozenset[tuple[Key, str, str]]  # what holds of a compilation: (compile id, kind, value)


class CompiledOtherwise(NamedTuple):
    """Ranks by place, and how they differ: "recompiled forward as 0/1, which others did not"."""

    places: list[int]
    words: str


def compiled_otherwise(job: Job) -> list[CompiledOtherwise]:
    """Most ranks first; [] where fewer than three tell what they compiled, or no most of them agree."""
    facts = {place: one.of(_facts) for place, one in enumerate(job.digests)}
    known = {place: one for place, one in facts.items() if one}
    if len(known) < 3:
        return []
    usual, count = Counter(known.values()).most_common(1)[0]
    if 2 * count <= len(known):
        return []
    others = grouped((place for place, one in known.items() if one != usual), lambda place: known[place])
    rows = [CompiledOtherwise(places, _words(mine, usual)) for mine, places in others.items()]
    return sorted(rows, key=lambda row: -len(row.places))


def _facts(one: RankDigest) -> _Facts:
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
