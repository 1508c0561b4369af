"""What the recorded steps would gain, cause by cause: findings that are predictions.

One kind of fix is one rule. The model of the step tells what mending it brings (see `analysis/what_if`); these rules
are its limit, and the words are `what_if/words.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.rule import Finding, Rule
from tb_torchcompile_plugin.analysis.what_if.fix import OF_CHANGING_SIZES, FixKind
from tb_torchcompile_plugin.analysis.what_if.what_if import WhatIf
from tb_torchcompile_plugin.analysis.what_if.words import WORDS, next_step, place, with_gain, words_of

# These have rules of their own, which know the guard that failed, what broke and what changed.
_TOLD_ELSEWHERE: tuple[FixKind, ...] = (
    *("compile", "graph_breaks", "frames", "backend", "roofline", "communication"),
    "graph_capture",
)


_NAMED = 3  # graphs in a sentence
_MANY_CALLS = 4  # of one graph in a step, from which on a batch is worth a word

# Rules that are older than the model keep their ids: people switched them off by these.
_IDS: dict[FixKind, str] = {
    "garbage": "garbage_collection",
    "cuda_graphs": "launch_bound",
    "eager": "eager_remainder",
    "tensor_cores": "fp32_matmul",
}


class WhatIfRule(Rule):
    """The fixes of one kind whose predicted gain is worth a sentence."""

    def __init__(self, kind: FixKind) -> None:
        self.id, self.kind, self.panel = _IDS.get(kind, kind), kind, WORDS[kind].panel  # type: ignore[misc]

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if self.kind == "cuda_graphs" and context.cuda_graphs_asked:
            return  # another rule says what keeps them from being used
        if self.kind == "eager" and context.runs_eager:
            return  # because nothing is compiled, or a frame was given up: another rule says which
        rows = context.fixes(self.kind)
        worth = [row for row in rows if row.predicted.gain_percent >= thresholds.gain_percent]
        advised = [row for row in worth if row.id != OF_CHANGING_SIZES]
        yield from (self._finding(context, row) for row in advised)
        if worth and not advised:
            yield self._considered(context, worth[0])

    def _considered(self, context: RuleContext, row: WhatIf) -> Finding:
        """What would help if sizes repeated, and why it is not advised."""
        symbols = _symbols(context)
        return self.finding(
            context,
            f"CUDA graphs would launch each compiled graph as one, but sizes change ({', '.join(symbols)}): one would "
            "be recorded for each",
            next_step(row),
            {"symbols": len(symbols)},
            severity="info",
            advised=False,
        )

    def _finding(self, context: RuleContext, row: WhatIf) -> Finding:
        gain, where = row.predicted.step_us - row.predicted.after_us, place(row)
        return self.finding(
            context,
            with_gain(row, context.paced),
            _of_graphs(context, next_step(row)) if self.kind == "cuda_graphs" else next_step(row),
            {
                "gain_us_per_step": gain,
                "share_percent": row.predicted.gain_percent,
                "times_per_step": row.times,
            },
            saves_us=gain * max(context.steps, 1),
            by=row,
            where=[where] if where else [],
            code=words_of(row).code,
        )


def _of_graphs(context: RuleContext, advice: str) -> str:
    return _batched(context, advice) + _left_out(context)


def _left_out(context: RuleContext) -> str:
    """The graphs that CUDA graphs do not serve; "" where there are none."""
    names = list(context.changing)
    if not names:
        return ""
    named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return (
        f". The sizes of {named} change ({', '.join(_symbols(context))}), so set "
        "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True, or a graph is recorded for each size: "
        f"the prediction leaves {'it' if len(names) == 1 else 'them'} out"
    )


def _symbols(context: RuleContext) -> list[str]:
    return sorted({symbol for symbols in context.changing.values() for symbol in symbols})


def _batched(context: RuleContext, advice: str) -> str:
    """What launches least is one call in place of many."""
    times = context.calls_of_one_graph
    if times < _MANY_CALLS:
        return advice
    return (
        f"The same graph is called {times:.3g} times {context.where}: where a call does not need what the one before "
        f"gave, make one batch of them. Else: {advice}"
    )


WHAT_IF_RULES: tuple[Rule, ...] = tuple(WhatIfRule(kind) for kind in WORDS if kind not in _TOLD_ELSEWHERE)
