"""The rows of the panel *Dynamic shapes*."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tb_torchcompile_plugin.analysis.sheet import head

SymbolOrigin = Literal["asked", "changed", "data"]
SizeServed = Literal["dynamic", "specialised", "eager"]


class DynamicSymbol(msgspec.Struct, frozen=True):
    """A size that is not fixed in a compiled graph. source: the input's expression. origin: `asked` by mark_dynamic or
    dynamic=True, `changed` between two calls, so that torch made it dynamic, or `data` decides it. value: in the call
    that was compiled. file, line: where the program first used it. guards: expressions over it that must hold.
    fixed: the value it was fixed to after all, reason: why. sizes: how many came in this span, calls: in how many
    calls; None where the trace does not tell."""

    compile_id: str
    symbol: str
    source: str
    origin: SymbolOrigin
    value: str | None
    range: str | None
    fixed: str | None
    reason: str | None
    guards: int
    sizes: int | None
    calls: int | None
    file: str
    line: int | None


class DynamicGuard(msgspec.Struct, frozen=True):
    """An expression over symbols that must hold. recompiles: how often one of this form, whatever its number, failed
    and was compiled for again. file, line: the code that made torch ask."""

    expression: str
    compile_ids: list[str]
    recompiles: int
    file: str
    line: int | None


class SizeThatCame(msgspec.Struct, frozen=True):
    """One value of one size of one function. served: by a graph in which the size is `dynamic`, by one compiled for it
    (`specialised`), or `eager` behind the recompile limit. calls: of this span, None where the trace does not tell.
    compile_s: of the graph that was compiled for it alone."""

    function: str
    source: str
    size: int
    served: SizeServed
    compile_id: str
    calls: int | None
    compile_s: float | None


class PaddedSize(msgspec.Struct, frozen=True):
    """If a size were padded to multiples of `multiple`: how many sizes would be left, and how much more data, on
    average over the calls (over the sizes where calls are not known)."""

    function: str
    source: str
    multiple: int
    sizes: int
    left: Annotated[int, head("Sizes left")]
    more_percent: Annotated[float, head("More data")]


class DynamicShapeReport(msgspec.Struct, frozen=True):
    """says: the first sentence is the answer. code: what to paste where marking helps."""

    says: tuple[str, ...]
    sizes: tuple[SizeThatCame, ...]
    symbols: tuple[DynamicSymbol, ...]
    guards: tuple[DynamicGuard, ...]
    padded: tuple[PaddedSize, ...]
    code: str | None
