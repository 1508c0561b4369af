"""How is each kind of fix put into words: what is to be fixed, where it is shown, and what to write instead?"""

from typing import Literal, NamedTuple

from tb_torchcompile_plugin.analysis.causes.fix import DYNAMIC_CUDA_GRAPHS, FixKind
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.analysis.finding import Predicted
from tb_torchcompile_plugin.analysis.formatting import at_line, duration, often, rounded
from tb_torchcompile_plugin.analysis.runtime.step_picture import PER_STEP, TimeUnit
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAME_CHARS
from tb_torchcompile_plugin.torch_names.kernels import short_kernel
from tb_torchcompile_plugin.torch_names.slices import is_free

SeenIn = Literal[
    "step_breakdown",
    "operators",
    "compiled_regions",
    "memory",
    "gpu_utilization",
    "cuda_graphs",
    "kernels",
    "graph_breaks",
    "recompiles",
]
_NAMED_BY_KERNEL: tuple[FixKind, ...] = ("layout", "casts", "weight_casts", "joined", "roofline")


class Words(NamedTuple):
    """The words of a kind of fix.

    In `what`, {name} is the operator, call or function, {place} the user's line, {times} how often per step, {often}
    the same in words, {s} an s unless it is once, {graphs} "2 compiled graphs", {embeddings} "2 embeddings", {keeps}
    "keep" where the name is of two, {each} "a step".
    """

    what: str  # the sentence before the numbers
    panel: SeenIn
    next_step: str  # what to write instead
    fixed: str = "without that"  # before the predicted time
    code: str | None = None  # the part of the next step that can be pasted


WORDS: dict[FixKind, Words] = {
    "garbage": Words(
        "Garbage is collected{place}",
        "step_breakdown",
        "Collect seldom: gc.freeze() after start-up, gc.disable(), and gc.collect() every few hundred steps",
        code="gc.freeze()\ngc.disable()",
    ),
    "data_loading": Words(
        "The loop waits for the next batch{place}",
        "step_breakdown",
        "Load ahead: DataLoader(..., num_workers=4, pin_memory=True, prefetch_factor=2, persistent_workers=True)",
        code="DataLoader(..., num_workers=4, pin_memory=True, prefetch_factor=2, persistent_workers=True)",
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
        "{name} {keeps} the host busy{place}",
        "operators",
        "It does more than launch, as libraries do for a shape that they have not seen: keep shapes the same, pad or "
        "bucket them",
    ),
    "nothing": Words(
        "Host time between operators is unaccounted for",
        "step_breakdown",
        "Record with with_stack=True to see the line: it is Python outside of torch, or waiting for something else",
    ),
    "guards": Words(
        "Guards are checked {often} {each}{place}",
        "compiled_regions",
        "Compile one larger function instead of many small ones, or drop guards that you know to hold: "
        "torch.compile(model, options={{'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe}})",
        code="torch.compile(model, options={'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe})",
    ),
    "allocation": Words(
        "{name} asks the driver for memory {often} {each}{place}",
        "memory",
        "Keep torch's cache of memory: no torch.cuda.empty_cache() in the loop; pin buffers once and use them again",
    ),
    "module_load": Words(
        "{name} loads code onto the GPU{place}",
        "step_breakdown",
        "It happens once for each kernel: warm up with every shape before the profiled steps",
    ),
    "graph_capture": Words(
        "CUDA graphs are not replayed {often} {each}{place}: they are recorded anew, or wait to be",
        "cuda_graphs",
        "Give it the same shapes and the same input buffers in each step: pad, or copy into static inputs. CUDA graphs "
        "says which of them changed",
        "replayed,",
    ),
    "synchronise": Words(
        "The host waits for the GPU {often} {each}, in {name}{place}",
        "step_breakdown",
        "Do without the value, or ask for it once in a while: keep it on the GPU, log every 100 steps, or copy it with "
        "non_blocking=True",
    ),
    "copies": Words(
        "Copies to the GPU, from memory that is not pinned, hold the host{place}",
        "gpu_utilization",
        "Pin it, by DataLoader(..., pin_memory=True) or once by tensor.pin_memory(), and do not wait for the copy: "
        "tensor.to(device, non_blocking=True)",
        "with pinned memory",
        code="tensor.to(device, non_blocking=True)",
    ),
    "cuda_graphs": Words(
        "Launching the {graphs} of {one} kernel by kernel is slower than the GPU",
        "gpu_utilization",
        'Launch each as one: torch.compile(model, mode="reduce-overhead")',
        "with CUDA graphs",
        code='torch.compile(model, mode="reduce-overhead")',
    ),
    "eager": Words(
        "{times} eager operator{s} {each}, such as {name}, {are} launched one by one{place}",
        "compiled_regions",
        "Compile the function that calls them, or use torch._foreach_* and one operator for many tensors",
        "compiled,",
    ),
    "frames": Words(
        "Frames that torch gave up run eager{place}",
        "compiled_regions",
        "See Compilations for why: what breaks the graph in a loop or changes each time goes out of "
        "the compiled function",
        "compiled,",
    ),
    "backend": Words(
        "{times} operator{s} {each} of captured frames, such as {name}, {are} launched one by one",
        "compiled_regions",
        "Drop backend=…, which somebody may have debugged with: torch.compile(model) uses inductor",
        "with inductor",
        code="torch.compile(model)",
    ),
    "tensor_cores": Words(
        "Matrices are multiplied in float32 without tensor cores{place}",
        "kernels",
        'torch.set_float32_matmul_precision("high"), or autocast to bfloat16',
        "with them",
        code='torch.set_float32_matmul_precision("high")',
    ),
    "double_precision": Words(
        "Matrices are multiplied in float64{place}",
        "kernels",
        "Make the tensors float32: NumPy's are float64 unless told otherwise",
        "in float32",
    ),
    "layout": Words(
        "Tensors are copied into another layout {often} {each} ({name}){place}",
        "kernels",
        "Keep one layout: model and images .to(memory_format=torch.channels_last), volumes (5 dimensions) "
        "torch.channels_last_3d; no .contiguous() of a view, and no layer that gives the other one back",
        code=".to(memory_format=torch.channels_last)",
    ),
    "casts": Words(
        "Tensors change their type {often} {each} ({name}){place}",
        "kernels",
        "Keep one type along the way: cast once, or let autocast do it inside of compiled code",
    ),
    "weight_casts": Words(
        "Compiled code changes the type of tensors and does nothing else, {often} {each} ({name})",
        "kernels",
        "Where these are weights, which autocast casts in each call, keep them in the type that is computed with: "
        "model.to(torch.bfloat16) before torch.compile",
        code="model.to(torch.bfloat16)",
    ),
    "joined": Words(
        "Tensors are joined by copying them {often} {each} ({name}){place}",
        "kernels",
        "Make one tensor that is large enough and write into it: buffer[:, :, n] = x "
        "in place of torch.cat((buffer, x), 2)",
        code="buffer[:, :, n] = x",
    ),
    "attention": Words(
        "Attention is written out {often} {each}, as a product, a softmax and a product{place}",
        "kernels",
        "Make it one operator, which keeps the matrix of weights out of memory: "
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask); in transformers "
        'attn_implementation="sdpa", of nn.MultiheadAttention need_weights=False. It does not return the weights',
        "with scaled_dot_product_attention",
        code="torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ),
    "anomaly_mode": Words(
        "Anomaly mode is on: autograd looks for a NaN {often} {each} and keeps the stack of each node",
        "operators",
        "Switch it off where no error is looked for: torch.autograd.set_detect_anomaly(False)",
        code="torch.autograd.set_detect_anomaly(False)",
    ),
    "repeated_backward": Words(
        "Autograd goes back through the same compiled graph {often} more than it ran forward",
        "compiled_regions",
        "Add the losses up and call backward once: sum(losses).backward(), without retain_graph",
        code="sum(losses).backward()",
    ),
    "recomputed": Words(
        "Checkpoints compute the forward once more in the backward, {often} {each}{place}",
        "memory",
        "Keep it where memory allows: no checkpoint around the layers (model.gradient_checkpointing_disable() in "
        "transformers), or around a few of them only",
        "where memory allows, without them",
        code="model.gradient_checkpointing_disable()",
    ),
    "recurrent_cells": Words(
        "A recurrent network is called cell by cell, {often} {each}{place}",
        "operators",
        "Where no input is made of the output before it, give it the whole sequence at once: torch.nn.LSTM, GRU or RNN "
        "in place of a loop over cells, and what reads each state behind it on all of them",
        "with the whole sequence at once",
        code="torch.nn.LSTM",
    ),
    "zeroed_gradients": Words(
        "Gradients are set to zero in {times} kernel{s} {each}, and then added to",
        "operators",
        "Give them back: optimizer.zero_grad(set_to_none=True), which is the default. Gradients that stay keep CUDA "
        "graphs from being used, too: torch refuses to write over what an earlier run gave",
        code="optimizer.zero_grad(set_to_none=True)",
    ),
    "deterministic": Words(
        "Deterministic algorithms are on: {name} sorts its indices first, {often} {each}{place}",
        "operators",
        "Switch them off where results need not be the same to the last bit: "
        "torch.use_deterministic_algorithms(False)",
        code="torch.use_deterministic_algorithms(False)",
    ),
    "batch": Words(
        "A step goes forward and backward {often} for one step of the optimizer{place}",
        "step_breakdown",
        "Make one batch of them, or fewer and larger ones, as far as memory allows",
        "as one batch",
    ),
    "reduced_once": Words(
        "Gradients are reduced over the ranks {often} {each} ({name}), once for each backward",
        "gpu_utilization",
        "Reduce them in the last one: with ddp.no_sync(): for all micro-batches before, or "
        "fsdp_module.set_requires_gradient_sync(False), which keeps whole gradients on each rank meanwhile",
        "reduced once",
        code="with ddp.no_sync():",
    ),
    "small_collectives": Words(
        "{times} small collectives a step ({name}) move parameters and gradients",
        "gpu_utilization",
        "Put them together: fully_shard around blocks of the model in place of single layers, DDP’s buckets, or one "
        "tensor of all gradients in place of a loop over them",
        "with few large ones",
    ),
    "fused_optimizer": Words(
        "The optimizer launches {times} kernel{s} {each}",
        "operators",
        "Let it launch a few: torch.optim.AdamW(..., fused=True), or torch.compile(optimizer.step)",
        "fused,",
        code="torch.optim.AdamW(..., fused=True)",
    ),
    "dense_embedding": Words(
        "The gradient{s} of {embeddings} {are} dense, though a step looks up at most {name}, so that filling and the "
        "optimizer go over all of them",
        "operators",
        "Let the gradient be sparse, torch.nn.Embedding(..., sparse=True), and give the weight an optimizer of its own "
        "that takes that: torch.optim.SparseAdam(embedding.parameters()), Adagrad, or SGD without momentum. SparseAdam "
        "updates only the rows that were looked up: momentum moves no others, and there is no weight decay. "
        "clip_grad_norm_ takes no sparse gradients",
        "with sparse gradients",
        code="torch.nn.Embedding(..., sparse=True)\ntorch.optim.SparseAdam(embedding.parameters())",
    ),
    "roofline": Words(
        "{name} moves its data far slower than the GPU could{place}",
        "kernels",
        'Tune it: torch.compile(model, mode="max-autotune"), larger tensors, or neighbouring threads that touch '
        "neighbouring numbers",
        "at that pace",
        code='torch.compile(model, mode="max-autotune")',
    ),
    "communication": Words(
        "Communication is not overlapped ({name})",
        "gpu_utilization",
        "Let it overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching",
        "overlapped,",
    ),
    "compile": Words(
        "torch.compile compiles in the step",
        "recompiles",
        "Keep what guards ask about the same, or mark it dynamic: Recompiles names the guard that failed",
    ),
    "graph_breaks": Words(
        "Frames are broken {often} {each}",
        "graph_breaks",
        "Take out of the compiled function what breaks it: Graph breaks names the line and the reason",
    ),
}
# Words that depend on more than the kind: copies have two directions, CUDA graphs help only where sizes stay the same.
_BY_ID = {
    "copies:Device -> Pageable": WORDS["copies"]._replace(
        what="Copies from the GPU, to memory that is not pinned, hold the host{place}",
        next_step="Copy into memory that is pinned once, torch.empty(..., pin_memory=True), by copy_(tensor, "
        "non_blocking=True), and synchronise before it is read; or copy what is needed only",
        code="pinned.copy_(tensor, non_blocking=True)",
    ),
    DYNAMIC_CUDA_GRAPHS: WORDS["cuda_graphs"]._replace(
        what="Launching the {graphs} of {one} whose sizes change kernel by kernel is slower than the GPU",
        next_step="Pad or bucket the sizes first; then "
        'torch.compile(model, mode="reduce-overhead", dynamic=False)',
        code='torch.compile(model, mode="reduce-overhead", dynamic=False)',
    ),
}
# Memory that is given back to the driver is asked for again.
_FREED = WORDS["allocation"]._replace(
    what="Memory is given back to the driver or asked for again {often} {each} ({name}){place}",
    next_step="Drop torch.cuda.empty_cache() if it is called{place}: what torch keeps is used again, and nobody has to "
    "ask for it. Else memory is almost full, or PYTORCH_NO_CUDA_MEMORY_CACHING is set",
)


def words_of(row: WhatIf, unit: TimeUnit = PER_STEP) -> Words:
    """Return the words about a fix, filled in: those of its kind, except for a few."""
    words = _BY_ID.get(row.id, WORDS[row.kind])
    if row.kind == "allocation" and is_free(row.name):
        words = _FREED
    times, line = rounded(row.times), at_line(row.file, row.line)
    once, place = times == "1", f" at {line}" if line else ""
    name = short_kernel(row.name) if row.kind in _NAMED_BY_KERNEL else row.name
    name = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"
    what = words.what.format(
        name=f"{name} (name repaired)" if "\ufffd" in name else name or "(no name)",
        place=place,
        times=times,
        often=often(row.times),
        s="" if once else "s",
        are="is" if once else "are",
        graphs="compiled graph" if row.times <= 1 else f"{times} compiled graphs",
        embeddings="an embedding" if once else f"{times} embeddings",
        keeps="keep" if " and " in row.name else "keeps",
        **unit._asdict(),
    )
    return words._replace(what=what, next_step=words.next_step.format(place=place))


def with_gain(row: WhatIf, unit: TimeUnit = PER_STEP) -> str:
    """Return "Garbage is collected at train.py:12: without that a step takes 868 µs instead of 2.82 ms"."""
    words = words_of(row, unit)
    gain = saves_up_to if row.kind == "eager" else step_after
    return f"{words.what}: {gain(row.predicted, words.fixed, unit)}"


def step_after(predicted: Predicted, fixed: str, unit: TimeUnit = PER_STEP) -> str:
    """Return "with inductor a step takes 868 µs instead of 2.82 ms"."""
    after, now = duration(predicted.after_us), duration(predicted.step_us)
    return f"{fixed} {unit.one} takes {after} instead of {now}"


def saves_up_to(predicted: Predicted, fixed: str, unit: TimeUnit = PER_STEP) -> str:
    """Return "compiled, a step takes up to 81 % less" with the range: how much eager code gains varies widely."""
    bounds = (predicted.high_us, predicted.low_us)
    least, most = (max(round(100 * (1 - us / predicted.step_us)), 0) for us in bounds)
    return f"{fixed} {unit.one} takes up to {most} % less{f' ({least}–{most} %)' if least < most else ''}"
