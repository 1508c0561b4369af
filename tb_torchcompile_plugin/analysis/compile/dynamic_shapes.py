"""Which sizes are dynamic, which came, and what would keep torch from compiling for each of them?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import (
    DynamicGuard,
    DynamicShapeReport,
    DynamicSymbol,
    PaddedSize,
    SizeThatCame,
    dynamic_guards,
    dynamic_symbols,
    padded_sizes,
    sizes_that_came,
)
from tb_torchcompile_plugin.analysis.formatting import at_line, both, duration, listed, often, percent, plural
from tb_torchcompile_plugin.profile.profile import Profile

# What is said of sizes that differ, and what helps.


_SOURCE = re.compile(r"L\['(?P<name>\w+)'\]\.size\(\)\[(?P<index>\d+)\]$")
_MOST_MORE = 25.0  # percent of data that padding may add before another multiple is better


class Advice(NamedTuple):
    """`code`: to be pasted, None where there is none."""

    sentence: str
    code: str | None


def headline(
    sizes: Sequence[SizeThatCame], symbols: Sequence[DynamicSymbol], guards: Sequence[DynamicGuard]
) -> str:
    """The answer, in a sentence: what is compiled for each size first."""
    failed = next((row for row in guards if row.recompiles), None)
    static = [row for row in sizes if row.served != "dynamic"]
    free = [row for row in symbols if row.fixed is None]
    if failed is not None:
        return _specialised_by(failed)
    if len(static) > 2:
        return _compiled_for_each(static)
    if free:
        return _dynamic(free, sizes)
    fixed = len({row.symbol for row in symbols})
    if fixed:
        return f"No size stayed dynamic: {plural(fixed, 'symbol')} of the compiled graphs were fixed to one value."
    return "No size is dynamic: each graph is compiled for the sizes of its first call."


def _specialised_by(guard: DynamicGuard) -> str:
    place = at_line(guard.file, guard.line)
    return (
        f"A dynamic size is specialised again{f' at {place}' if place else ''}: {guard.expression} made torch compile "
        f"{often(guard.recompiles)} more."
    )


def _compiled_for_each(rows: list[SizeThatCame]) -> str:
    compiled = [row for row in rows if row.served == "specialised"]
    eager = [row for row in rows if row.served == "eager"]
    last = f"; from {eager[0].source} = {eager[0].size:,} on new ones ran eager" if eager else ""
    return (
        f"{rows[0].function} was compiled for {plural(len({row.size for row in compiled}), 'size')} of "
        f"{rows[0].source} ({listed(sorted({row.size for row in compiled}))}){last}."
    )


def _dynamic(free: list[DynamicSymbol], sizes: Sequence[SizeThatCame]) -> str:
    names = list(dict.fromkeys(row.source or row.symbol for row in free))
    came = sorted({row.size for row in sizes if row.served == "dynamic"})
    said = f"; {plural(len(came), 'size')} came ({listed(came)})" if came else ""
    return f"{both(names[:3])} {'is' if len(names) == 1 else 'are'} dynamic{said}."


def advice(
    sizes: Sequence[SizeThatCame],
    symbols: Sequence[DynamicSymbol],
    guards: Sequence[DynamicGuard],
    padded: Sequence[PaddedSize],
) -> Advice | None:
    """What keeps torch from compiling for each size; None where nothing does so."""
    failed = next((row for row in guards if row.recompiles), None)
    if failed is not None:
        where = at_line(failed.file, failed.line)
        return Advice(
            f"Keep Python from asking for the size{f' at {where}' if where else ''}: compute it with tensors, or "
            f"outside of the compiled function{_or_pad(padded)}",
            None,
        )
    static = [row for row in sizes if row.served != "dynamic"]
    alone = len({row.size for row in static}) == 1 and any(row.origin == "changed" for row in symbols)
    if alone:
        return _first_for_nothing(static[0])
    return (
        Advice(f"Mark the size dynamic before the first call{_or_pad(padded)}", mark(static[0].source))
        if static
        else None
    )


def _first_for_nothing(row: SizeThatCame) -> Advice:
    took = "" if row.compile_s is None else f", which took {duration(1e6 * row.compile_s)}"
    return Advice(
        f"Mark the size dynamic before the first call: no graph for {row.size:,} alone is compiled then{took}",
        mark(row.source),
    )


def mark(source: str) -> str | None:
    """`torch._dynamo.mark_dynamic(x, 0)` of "L['x'].size()[0]"."""
    match = _SOURCE.match(source)
    return f"torch._dynamo.mark_dynamic({match['name']}, {match['index']})" if match else None


def _or_pad(padded: Sequence[PaddedSize]) -> str:
    best = best_padding(padded)
    if best is None:
        return ""
    return (
        f"; or pad {best.source} to multiples of {best.multiple}: {plural(best.left, 'size')} instead of {best.sizes}, "
        f"with {percent(best.more_percent)} more data"
    )


def best_padding(padded: Sequence[PaddedSize]) -> PaddedSize | None:
    """The coarsest that adds little."""
    little = [row for row in padded if row.more_percent <= _MOST_MORE]
    return min(little, key=lambda row: (row.left, row.more_percent), default=None)


_UNKNOWN = "Whether sizes are dynamic is not known: there is no compile log or summary of this process."


def dynamic_shapes(profile: Profile) -> DynamicShapeReport:
    """Of one span, with what its process compiled."""
    if profile.data is None:
        return DynamicShapeReport((_UNKNOWN,), (), (), (), (), None)
    sizes, symbols = profile.of(sizes_that_came), profile.of(dynamic_symbols)
    guards = profile.data.of(dynamic_guards)
    helps = profile.of(size_advice)
    said = headline(sizes, symbols, guards)
    return DynamicShapeReport(
        says=(said, f"{helps.sentence}.") if helps else (said,),
        sizes=tuple(sizes),
        symbols=tuple(symbols),
        guards=tuple(guards),
        padded=tuple(profile.of(padded_sizes)),
        code=helps.code if helps else None,
    )


def size_advice(profile: Profile) -> Advice | None:
    """What helps where torch compiles for each size; None where it does not."""
    if profile.data is None:
        return None
    return advice(
        profile.of(sizes_that_came),
        profile.of(dynamic_symbols),
        profile.data.of(dynamic_guards),
        profile.of(padded_sizes),
    )
