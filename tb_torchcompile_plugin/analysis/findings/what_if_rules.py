"""What the recorded steps would gain, cause by cause: findings that are predictions.

One kind of fix is one rule. The model of the step tells what mending it brings (see `analysis/what_if`); here are the
words: what, where, how much, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.rule import Finding, Rule
from tb_torchcompile_plugin.analysis.what_if.fix import FixKind
from tb_torchcompile_plugin.analysis.what_if.what_if import WhatIf
from tb_torchcompile_plugin.analysis.words import duration

_LONGEST = 60


class Words(NamedTuple):
    """what: the sentence before the numbers; {name} is the operator, call or function, {place} the user's line, {times}
    how often a step. panel: where it is seen. next_step: what to write instead."""

    what: str
    panel: str
    next_step: str


# Recompiles and graph breaks have rules of their own, which know the guard that failed and what broke.
WORDS: dict[FixKind, Words] = {
    "garbage": Words(
        "Garbage is collected{place}",
        "step_breakdown",
        "Collect seldom: gc.freeze() after start-up, gc.disable(), and gc.collect() every few hundred steps",
    ),
    "data_loading": Words(
        "The loop waits for the next batch{place}",
        "step_breakdown",
        "Load ahead: DataLoader(..., num_workers=4, pin_memory=True, prefetch_factor=2, persistent_workers=True)",
    ),
    "python": Words(
        "Python takes the host's time{place}",
        "operators",
        "Take it out of the step: compute it once before the loop, in the data loader's workers, or with tensors",
    ),
    "library": Words(
        "Python runs in {name}, called{place}",
        "operators",
        "Call it less often, or outside of the step; what it does for each parameter or batch can be done at once",
    ),
    "operator": Words(
        "{name} keeps the host busy{place}",
        "operators",
        "It does more than launch, as libraries do for a shape that they have not seen: keep shapes the same, pad or "
        "bucket them",
    ),
    "nothing": Words(
        "The host does nothing that was recorded between operators",
        "step_breakdown",
        "Record with with_stack=True to see the line: it is Python outside of torch, or waiting for something else",
    ),
    "guards": Words(
        "Guards are checked {times} times{place}",
        "compiled_regions",
        "Compile one larger function instead of many small ones, or drop guards that you know to hold: "
        "torch.compile(model, options={{'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe}})",
    ),
    "allocation": Words(
        "{name} asks the driver for memory {times} times{place}",
        "memory",
        "Keep torch's cache of memory: no torch.cuda.empty_cache() in the loop; pin buffers once and use them again",
    ),
    "module_load": Words(
        "{name} loads code onto the GPU{place}",
        "step_breakdown",
        "It happens once for each kernel: warm up with every shape before the profiled steps",
    ),
    "graph_capture": Words(
        "CUDA graphs are recorded {times} times a step instead of being replayed{place}",
        "gpu_utilization",
        "Give the graph the same shapes and the same input buffers in each step: pad, or copy into static inputs",
    ),
    "synchronise": Words(
        "The host waits for the GPU {times} times in {name}{place}",
        "step_breakdown",
        "Do without the value, or ask for it once in a while: keep it on the GPU, log every 100 steps, or copy it with "
        "non_blocking=True",
    ),
    "copies": Words(
        "Copies between the GPU and memory that is not pinned hold the host ({name}){place}",
        "gpu_utilization",
        "DataLoader(..., pin_memory=True) and tensor.to(device, non_blocking=True)",
    ),
    "cuda_graphs": Words(
        "Launching the {times} compiled graphs of a step kernel by kernel is slower than the GPU",
        "gpu_utilization",
        'Launch each as one: torch.compile(model, mode="reduce-overhead")',
    ),
    "eager": Words(
        "{times} eager operators a step ({name}) are launched one by one{place}",
        "compiled_regions",
        "Compile the function that calls them, or use torch._foreach_* and one operator for many tensors",
    ),
    "tensor_cores": Words(
        "Matrices are multiplied in float32 without tensor cores{place}",
        "kernels",
        'torch.set_float32_matmul_precision("high"), or autocast to bfloat16',
    ),
    "double_precision": Words(
        "Matrices are multiplied in float64{place}",
        "kernels",
        "Make the tensors float32: NumPy's are float64 unless told otherwise",
    ),
    "layout": Words(
        "Tensors are copied into another layout {times} times a step ({name}){place}",
        "kernels",
        "Keep one layout: model and images .to(memory_format=torch.channels_last), and no .contiguous() of a view",
    ),
    "casts": Words(
        "Tensors change their type {times} times a step ({name}){place}",
        "kernels",
        "Keep one type along the way: cast once, or let autocast do it inside of compiled code",
    ),
    "fused_optimizer": Words(
        "The optimizer launches {times} kernels a step",
        "operators",
        "Let it launch a few: torch.optim.AdamW(..., fused=True), or torch.compile(optimizer.step)",
    ),
}


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
        self.id, self.kind, self.panel = _IDS.get(kind, kind), kind, WORDS[kind].panel  # type: ignore[misc, assignment]

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if self.kind == "cuda_graphs" and context.cuda_graphs_skipped:
            return  # they were asked for: another rule says what keeps them from being used
        if self.kind == "eager" and context.runs_eager:
            return  # because nothing is compiled, or a frame was given up: another rule says which
        for row in context.fixes(self.kind):
            gain = row.predicted.step_us - row.predicted.after_us
            if 100 * gain >= thresholds.gain_percent * row.predicted.step_us:
                yield self._finding(context, row, gain)

    def _finding(self, context: RuleContext, row: WhatIf, gain: float) -> Finding:
        words, now, after = WORDS[row.kind], row.predicted.step_us, row.predicted.after_us
        place = f"{row.file.rpartition('/')[2]}:{row.line}" if row.file else ""
        what = words.what.format(
            name=_short(row.name), place=f" at {place}" if place else "", times=f"{row.times:,.3g}"
        )
        return self.finding(
            context,
            f"{what}: without it a step takes {duration(after)} instead of {duration(now)}",
            words.next_step.format(),
            {"gain_us_per_step": gain, "share_percent": 100 * gain / now, "times_per_step": row.times},
            saves_us=gain * max(context.steps, 1),
            predicted=row.predicted,
            where=[place] if place else [],
        )


def _short(name: str) -> str:
    """Names of kernels run to hundreds of letters."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


WHAT_IF_RULES: tuple[Rule, ...] = tuple(WhatIfRule(kind) for kind in WORDS)
