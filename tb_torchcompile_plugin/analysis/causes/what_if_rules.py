"""Which fixes gain enough to be a finding? One rule for each kind of fix; the words are those of fix_words.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.eager_fixes import given_up
from tb_torchcompile_plugin.analysis.causes.fix import DYNAMIC_CUDA_GRAPHS, FixKind, changing_graphs
from tb_torchcompile_plugin.analysis.causes.fix_words import WORDS, next_step, place, with_gain, words_of
from tb_torchcompile_plugin.analysis.causes.rule import SpanContext, SpanRule
from tb_torchcompile_plugin.analysis.causes.scenario import priced
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.compile.compilation_details import Elements, guard_checks, most_elements
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import asks_for_graphs
from tb_torchcompile_plugin.analysis.runtime.launch_stats import cudagraph_skip_reasons, cudagraph_skips
from tb_torchcompile_plugin.analysis.runtime.memory import HeldMemory, held_memory
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls

# These have rules of their own, which name the guard that failed, what broke and what changed.
_OTHER_RULES = {"compile", "graph_breaks", "frames", "backend", "roofline", "communication", "graph_capture"}
# Rules that are older than the model keep their ids: people switched them off by these.
_IDS: dict[FixKind, str] = {
    "garbage": "garbage_collection",
    "cuda_graphs": "launch_bound",
    "eager": "eager_remainder",
    "tensor_cores": "fp32_matmul",
}
_MAX_GRAPHS = 3  # in a sentence
_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE = 100, 0.25  # guards of one container's elements, share of all guards
_AS_TENSOR = (
    "What compiled code reads of a list or dict of Python’s is checked element by element in each call: make {source} "
    "a tensor once, as register_buffer does, or read it outside of the compiled function"
)
_MANY_CALLS = 4  # of one graph per step, from which on a batch is worth a word


class WhatIfRule(SpanRule):
    """The fixes of one kind whose predicted gain is large enough."""

    def __init__(self, kind: FixKind) -> None:
        self.id, self.kind, self.panel = _IDS.get(kind, kind), kind, WORDS[kind].panel  # type: ignore[misc]

    def evaluate(self, context: SpanContext) -> Iterator[Finding]:
        """Yield a finding for each, unless another rule says why it would not help."""
        if self.kind == "cuda_graphs" and _uses_cuda_graphs(context):
            return
        if self.kind == "eager" and (context.nothing_compiled or context.profile.of(given_up)):
            return
        rows = [row for row in context.profile.of(priced) if row.kind == self.kind]
        large = [row for row in rows if row.predicted.gain_percent >= thresholds.gain_percent]
        fullest = None
        if self.kind == "recomputed":  # checkpoints save memory
            devices = context.profile.of(held_memory)
            fullest = max(devices, key=lambda device: device.share_percent or 0, default=None)
        if fullest and (fullest.share_percent or 0) >= thresholds.memory_percent:
            for row in large:  # a step needs its checkpoints
                title = f"{with_gain(row, context.paced)}, but {fullest.sentence()}"
                yield self._not_advised(context, row, title, {"times_per_step": row.times})
            return
        advised = [row for row in large if row.id != DYNAMIC_CUDA_GRAPHS]
        yield from (self._advised(context, row, fullest) for row in advised)
        if large and not advised:
            symbols = _symbols(context.profile.of(changing_graphs))
            title = (
                f"CUDA graphs would launch each compiled graph as one, but sizes change ({', '.join(symbols)}): one "
                "would be recorded for each"
            )
            yield self._not_advised(context, large[0], title, {"symbols": len(symbols)})

    def _not_advised(self, context: SpanContext, row: WhatIf, title: str, evidence: Evidence) -> Finding:
        return self.finding(context, title, next_step(row), evidence, severity="info", advised=False)

    def _advised(self, context: SpanContext, row: WhatIf, fullest: HeldMemory | None) -> Finding:
        gain, where = row.predicted.gain_us, place(row)
        title, advice = with_gain(row, context.paced), next_step(row)
        if self.kind == "cuda_graphs":
            advice = _cuda_graph_advice(context, advice)
        elif self.kind == "guards" and (elements := _elements_checked(context)):
            where = elements.line or where
            at = f", at {elements.line}" if elements.line else ""
            title += f"; {elements.many:,} guards compare the elements of {elements.source}{at}"
            advice = f"{_AS_TENSOR.format(source=elements.source)}. Else: {advice}"
        elif fullest:
            advice += f". {fullest.sentence()}"
        return self.finding(
            context,
            title,
            advice,
            {
                "gain_us_per_step": gain,
                "share_percent": row.predicted.gain_percent,
                "times_per_step": row.times,
            },
            saves_us=gain * context.step_count,
            by=row,
            where=[where] if where else [],
            code=words_of(row).code,
        )


def _uses_cuda_graphs(context: SpanContext) -> bool:
    """Whether inductor was told to use CUDA graphs; another rule says what keeps them from being used."""
    data = context.profile.data
    skips = data and (data.of(cudagraph_skips) or data.of(cudagraph_skip_reasons))
    return bool(skips) or context.profile.of(asks_for_graphs)


def _elements_checked(context: SpanContext) -> Elements | None:
    """Return the list or dict whose elements are a large part of all guards of the frames that ran."""
    data = context.profile.data
    if data is None:
        return None
    keys = {(row.epoch, row.compile_id) for row in data.of(compilations)}
    ran = sorted(key for key in keys if key[1] in context.regions_that_ran)
    checks = [check for key in ran for check in data.of(guard_checks, *key).guards]
    most = most_elements(checks)
    return most if most and most.many >= max(_MIN_ELEMENTS, _MIN_ELEMENTS_SHARE * len(checks)) else None


def _cuda_graph_advice(context: SpanContext, advice: str) -> str:
    """Add a batch in place of many calls, the graphs that CUDA graphs do not serve, and what keeps torch from them."""
    counts = Counter(call.compile_id for call in every(context.profile.of(region_calls)))
    times = max(counts.values(), default=0) / context.step_count
    if times >= _MANY_CALLS:
        advice = (
            f"The same graph is called {times:.3g} times {context.where}: where a call does not need what the one "
            f"before gave, make one batch of them. Else: {advice}"
        )
    if changing := context.profile.of(changing_graphs):
        names = list(changing)
        more = f" and {len(names) - _MAX_GRAPHS} more" if len(names) > _MAX_GRAPHS else ""
        advice += (
            f". The sizes of {', '.join(names[:_MAX_GRAPHS])}{more} change ({', '.join(_symbols(changing))}), so set "
            "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True, or a graph is recorded for each size: "
            f"the prediction leaves {'it' if len(names) == 1 else 'them'} out"
        )
    if context.best("zeroed_gradients"):  # torch raises an error in the second step
        advice += (
            ". Before that, give gradients back, optimizer.zero_grad(set_to_none=True): they are what an earlier run "
            "of a CUDA graph gave, and torch refuses to write over those that are kept"
        )
    return advice


def _symbols(changing: dict[str, list[str]]) -> list[str]:
    return sorted({symbol for symbols in changing.values() for symbol in symbols})


WHAT_IF_RULES: tuple[SpanRule, ...] = tuple(WhatIfRule(kind) for kind in WORDS if kind not in _OTHER_RULES)
