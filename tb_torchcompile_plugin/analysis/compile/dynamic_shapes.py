"""Which sizes are dynamic, which occurred, and what would keep torch from compiling for each of them?"""

from __future__ import annotations

import re
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import (
    DynamicGuard,
    DynamicShapeReport,
    DynamicSymbol,
    SizeThatCame,
    dynamic_guards,
    dynamic_symbols,
    padded_sizes,
    sizes_that_came,
)
from tb_torchcompile_plugin.analysis.formatting import at_line, both, duration, listed, often, percent, plural
from tb_torchcompile_plugin.profile.profile import Profile

_SOURCE = re.compile(r"L\['(?P<name>\w+)'\]\.size\(\)\[(?P<index>\d+)\]$")
# padding that adds more data is not advised (docs/definitions.md); no recorded source
_MAX_MORE_PERCENT = 25.0
_UNKNOWN = "Whether sizes are dynamic is not known: there is no compile log or summary of this process."


class Advice(NamedTuple):
    """What to do about sizes that torch compiles for one by one."""

    sentence: str
    code: str | None  # to paste, None where there is none


def dynamic_shapes(profile: Profile) -> DynamicShapeReport:
    """Describe the dynamic sizes of one span, with what its process compiled."""
    if profile.data is None:
        return DynamicShapeReport((_UNKNOWN,), (), (), (), (), None)
    sizes, symbols = profile.of(sizes_that_came), profile.of(dynamic_symbols)
    guards = profile.data.of(dynamic_guards)
    answer = _headline(sizes, symbols, guards)
    advice = profile.of(size_advice)
    return DynamicShapeReport(
        says=(answer, f"{advice.sentence}.") if advice else (answer,),
        sizes=tuple(sizes),
        symbols=tuple(symbols),
        guards=tuple(guards),
        padded=tuple(profile.of(padded_sizes)),
        code=advice.code if advice else None,
    )


def _headline(sizes: list[SizeThatCame], symbols: list[DynamicSymbol], guards: list[DynamicGuard]) -> str:
    """Answer in a sentence: what is compiled for each size comes first."""
    failed = next((row for row in guards if row.recompiles), None)
    if failed is not None:
        line = at_line(failed.file, failed.line)
        return (
            f"A dynamic size is specialised again{f' at {line}' if line else ''}: {failed.expression} made torch "
            f"compile {often(failed.recompiles)} more."
        )
    static = [row for row in sizes if row.served != "dynamic"]
    if len(static) > 2:
        compiled = sorted({row.size for row in static if row.served == "specialised"})
        eager = next((row for row in static if row.served == "eager"), None)
        limit = f"; from {eager.source} = {eager.size:,} on new ones ran eager" if eager else ""
        subject = (
            f"{static[0].function} was compiled for {plural(len(compiled), 'size')} of {static[0].source}"
        )
        return f"{subject} ({listed(compiled)}){limit}."
    names = list(dict.fromkeys(row.source or row.symbol for row in symbols if row.fixed is None))
    if names:
        distinct = sorted({row.size for row in sizes if row.served == "dynamic"})
        occurred = f"; {plural(len(distinct), 'size')} came ({listed(distinct)})" if distinct else ""
        return f"{both(names[:3])} {'is' if len(names) == 1 else 'are'} dynamic{occurred}."
    fixed = len({row.symbol for row in symbols})
    if fixed:
        return f"No size stayed dynamic: {plural(fixed, 'symbol')} of the compiled graphs were fixed to one value."
    return "No size is dynamic: each graph is compiled for the sizes of its first call."


def size_advice(profile: Profile) -> Advice | None:
    """Say what keeps torch from compiling for each size; None where it does not."""
    if profile.data is None:
        return None
    # The coarsest padding that adds little data.
    rows = [row for row in profile.of(padded_sizes) if row.more_percent <= _MAX_MORE_PERCENT]
    best = min(rows, key=lambda row: (row.left, row.more_percent), default=None)
    padding = ""
    if best is not None:
        padding = (
            f"; or pad {best.source} to multiples of {best.multiple}: {plural(best.left, 'size')} instead of "
            f"{best.sizes}, with {percent(best.more_percent)} more data"
        )
    failed = next((row for row in profile.data.of(dynamic_guards) if row.recompiles), None)
    if failed is not None:
        line = at_line(failed.file, failed.line)
        sentence = (
            f"Keep Python from asking for the size{f' at {line}' if line else ''}: compute it with tensors, or "
            f"outside of the compiled function{padding}"
        )
        return Advice(sentence, None)
    static = [row for row in profile.of(sizes_that_came) if row.served != "dynamic"]
    if not static:
        return None
    # "L['x'].size()[0]"
    source = _SOURCE.match(static[0].source)
    code = f"torch._dynamo.mark_dynamic({source['name']}, {source['index']})" if source else None
    sentence = f"Mark the size dynamic before the first call{padding}"
    became_dynamic = any(row.origin == "changed" for row in profile.of(dynamic_symbols))
    if became_dynamic and len({row.size for row in static}) == 1:
        size, compile_s = static[0].size, static[0].compile_s
        cost = "" if compile_s is None else f", which took {duration(1e6 * compile_s)}"
        sentence = (
            f"Mark the size dynamic before the first call: no graph for {size:,} alone is compiled then{cost}"
        )
    return Advice(sentence, code)
