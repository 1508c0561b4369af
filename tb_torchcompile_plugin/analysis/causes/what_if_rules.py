"""What the recorded steps would gain, cause by cause: findings that are predictions.

One kind of fix is one rule. The model of the step tells what mending it brings (see `analysis/what_if`); these rules
are its limit, and the words are `what_if/words.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.context import RuleContext
from tb_torchcompile_plugin.analysis.causes.fix import OF_CHANGING_SIZES, FixKind
from tb_torchcompile_plugin.analysis.causes.fix_words import WORDS, next_step, place, with_gain, words_of
from tb_torchcompile_plugin.analysis.causes.rule import Rule
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilation_details import Elements, guard_checks, most_elements
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.runtime.memory import HeldMemory, held_memory

# These have rules of their own, which know the guard that failed, what broke and what changed.
_TOLD_ELSEWHERE: tuple[FixKind, ...] = (
    *("compile", "graph_breaks", "frames", "backend", "roofline", "communication"),
    "graph_capture",
)


_NAMED = 3  # graphs in a sentence
# of one container, and of all guards, from which on they are worth a word
_ELEMENTS, _ELEMENTS_SHARE = 100, 0.25
_AS_TENSOR = (
    "What compiled code reads of a list or dict of Python’s is checked element by element in each call: make {source} "
    "a tensor once, as register_buffer does, or read it outside of the compiled function"
)
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
        if self.kind == "recomputed" and _is_full(context):
            yield from (self._needed(context, row) for row in worth)
            return
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

    def _needed(self, context: RuleContext, row: WhatIf) -> Finding:
        """What would help if there were more memory."""
        title = f"{with_gain(row, context.paced)}, but {_room(context)}"
        times = {"times_per_step": row.times}
        return self.finding(context, title, next_step(row), times, severity="info", advised=False)

    def _finding(self, context: RuleContext, row: WhatIf) -> Finding:
        gain, where = row.predicted.step_us - row.predicted.after_us, place(row)
        title, advice = with_gain(row, context.paced), next_step(row)
        if self.kind == "cuda_graphs":
            advice = _of_graphs(context, advice)
        elif self.kind == "guards" and (elements := _checked_one_by_one(context)):
            where = elements.line or where
            title += f"; {_of_elements(elements)}"
            advice = f"{_AS_TENSOR.format(source=elements.source)}. Else: {advice}"
        elif self.kind == "recomputed" and (room := _room(context)):
            advice += f". {room}"
        return self.finding(
            context,
            title,
            advice,
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


def _room(context: RuleContext) -> str:
    """What the trace tells of the memory that checkpoints save."""
    return next((one.sentence() for one in _fullest_first(context)), "")


def _is_full(context: RuleContext) -> bool:
    """Whether memory is known not to allow more: then checkpoints are what a step needs."""
    return any((one.share_percent or 0) >= thresholds.memory_percent for one in _fullest_first(context))


def _fullest_first(context: RuleContext) -> list[HeldMemory]:
    devices = context.profile.of(held_memory) if context.profile else []
    return sorted(devices, key=lambda one: -(one.share_percent or 0))


def _checked_one_by_one(context: RuleContext) -> Elements | None:
    """The list or dict whose elements are a good part of all guards of the frames that ran."""
    data = context.data
    if data is None:
        return None
    made = {(row.epoch, row.compile_id) for row in data.of(compilations)}
    ran = sorted(key for key in made if key[1] in context.regions_that_ran)
    checks = [check for key in ran for check in data.of(guard_checks, *key).guards]
    most = most_elements(checks)
    return most if most and most.many >= max(_ELEMENTS, _ELEMENTS_SHARE * len(checks)) else None


def _of_elements(elements: Elements) -> str:
    made = f", at {elements.line}" if elements.line else ""
    return f"{elements.many:,} guards compare the elements of {elements.source}{made}"


def _of_graphs(context: RuleContext, advice: str) -> str:
    return _batched(context, advice) + _left_out(context) + _kept_gradients(context)


def _kept_gradients(context: RuleContext) -> str:
    """What keeps torch from using CUDA graphs at all: it raises an error in the step behind the first one."""
    if not context.best("zeroed_gradients"):
        return ""
    return (
        ". Before that, give gradients back, optimizer.zero_grad(set_to_none=True): they are what an earlier run of a "
        "CUDA graph gave, and torch refuses to write over those that are kept"
    )


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
