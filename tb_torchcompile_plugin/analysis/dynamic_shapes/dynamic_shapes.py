"""Which sizes are dynamic, which came, and what would keep torch from compiling for each of them?"""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.dynamic_shapes.rows import DynamicShapeReport
from tb_torchcompile_plugin.analysis.dynamic_shapes.sizes import padded_sizes, sizes_that_came
from tb_torchcompile_plugin.analysis.dynamic_shapes.symbols import dynamic_guards, dynamic_symbols
from tb_torchcompile_plugin.analysis.dynamic_shapes.words import Advice, advice, headline
from tb_torchcompile_plugin.profile.profile import Profile

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
