"""ATen's operators by name: what each computes, where its arguments stand, and what types of tensors are called."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

ATEN = "aten::"
CONTIGUOUS, CAST, JOIN = "aten::contiguous", "aten::_to_copy", "aten::cat"
# One step of a recurrent network, as nn.LSTMCell and its kin call it; what autograd runs for it.
_CELL = re.compile(r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)_cell$")
_CELL_BACKWARD = re.compile(
    r"autograd::engine::evaluate_function: Thnn(?:Fused|Differentiable)\w*CellBackward\d*$"
)
# What torch runs in place of atomic additions, and behind each allocation, under torch.use_deterministic_algorithms.
SCATTERS = tuple(
    f"aten::{name}"
    for name in ("scatter_add", "scatter_add_", "index_add", "index_add_", "scatter", "scatter_")
)
SORTED_INSTEAD, FILLED = "aten::index_put_", "aten::fill_"
ALLOCATES_ONLY = tuple(f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "resize_"))
_FLOAT8 = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
_TYPES = {
    1: ("bool", "unsigned char", "signed char", *(f"c10::Float8_{kind}" for kind in _FLOAT8)),
    2: ("short", "short int", "c10::Half", "c10::BFloat16"),
    4: ("int", "float"),
    8: ("long", "long int", "double", "c10::complex<float>"),
    16: ("c10::complex<double>",),
}
TYPE_BYTES = {kind: size for size, kinds in _TYPES.items() for kind in kinds}
HALF_TYPES = ("c10::BFloat16", "c10::Half")
# Where the two factors stand among the arguments.
PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
# Where padding, stride and dilation begin among the arguments.
WINDOWS = {"aten::cudnn_convolution": 2, "aten::miopen_convolution": 3}
CONVOLUTION_BACKWARD = "aten::convolution_backward"


class AttentionArguments(NamedTuple):
    """Where the arguments of an attention operator stand. `sequence`: the axis of a query that counts its positions."""

    query: int
    sequence: int
    causal: int
    backward: bool = False


class LookupArguments(NamedTuple):
    """Where the arguments of the gradient of an embedding stand: what was looked up, whether each row is scaled by how
    often it was, and how a bag is reduced, None where there are no bags."""

    indices: int
    scaled: int
    mode: int | None = None


LOOKUP_BACKWARDS = {  # those that make a dense gradient
    "aten::embedding_dense_backward": LookupArguments(1, 4),
    "aten::_embedding_bag_dense_backward": LookupArguments(1, 6, 7),
}
ATTENTION = {
    "aten::_flash_attention_forward": AttentionArguments(0, 1, 8),
    "aten::_flash_attention_backward": AttentionArguments(1, 1, 11, backward=True),
    "aten::_efficient_attention_forward": AttentionArguments(0, 1, 9),
    "aten::_efficient_attention_backward": AttentionArguments(1, 1, 14, backward=True),
    "aten::_cudnn_attention_forward": AttentionArguments(0, 2, 10),
    "aten::_cudnn_attention_backward": AttentionArguments(1, 2, 14, backward=True),
    "aten::_scaled_dot_product_cudnn_attention": AttentionArguments(0, 2, 6),
    "aten::_scaled_dot_product_cudnn_attention_backward": AttentionArguments(1, 2, 14, backward=True),
}
_LOOK = re.compile(
    r"(?:_?unsafe_)?(?:view|_view|reshape|_reshape_alias|permute|transpose|t|expand|unsqueeze|squeeze|select|slice|split"
    r"|chunk|unbind|detach|alias|as_strided|getitem|size|flatten|contiguous|to)(?:_as)?(?:_\d+)?(?:\.\w+)?$"
)
_WAY = re.compile(r"_(?:forward|backward)$")
_FUSIBLE_KERNEL = re.compile(
    r"at::native::.*(?:elementwise_kernel|reduce_kernel|[sS]oft[mM]ax|[nN]orm|CatArray)"
)
_GENERATED_CAST = re.compile(r"triton_poi_fused__to_copy(?:_\d+)?$")
_SCATTERING = re.compile(r"indexing_backward_kernel|index_put|index_elementwise_kernel|scatter")
_FUSIBLE_IN_GRAPHS = re.compile(r"triton_(?:poi|red|per)_")
# One result, as large as the arguments together make it; with a `_` at the end it takes the place of the first.
_ELEMENTWISE = re.compile(
    r"abs|add|addcdiv|addcmul|clamp|clamp_min|cos|div|elu|exp|gelu|gelu_backward|hardtanh|leaky_relu|lerp|log|masked_fill|"
    r"maximum|minimum|mul|native_layer_norm|neg|pow|reciprocal|relu|rsqrt|rsub|sigmoid|sigmoid_backward|silu|silu_backward|"
    r"sin|softplus|sqrt|sub|tanh|tanh_backward|threshold_backward|where|_softmax|_log_softmax"
)
_WRITTEN_ONLY = re.compile(r"copy_|fill_|zero_")  # the first argument is not read
_SUMMED = re.compile(r"sum|mean|prod|amax|amin|max|min|argmax|argmin|norm|linalg_vector_norm|var|std")
_ALLOCATES = re.compile(
    r"aten::((new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|resize_|to|_to_copy|clone)"
)
_LIBRARY = re.compile(r"(?:aten|c10d|nccl|record_param_comms)\b")
_LANDMARKS = (  # whatever kernels a library does it with
    ("convolution", re.compile(r"conv")),
    ("attention", re.compile(r"attention")),
    ("gemm", re.compile(r"^_?(addmm|mm|bmm|baddbmm|addbmm|linear|matmul|scaled_mm|grouped_mm|addmv|mv|dot)")),
)
# Of attention that is written out. In a generated kernel's name stand the operators that it fused; a softmax that
# torch's own attention falls back to is called a safe one, and that of a loss is logarithmic.
_SOFTMAX = re.compile(
    r"(?:aten::|triton_[a-z]+_fused_(?:\w*(?<!log)(?<!safe)(?<!prepare))?)_softmax(?!_backward|_online)"
)
_SOFTMAX_BACKWARD = re.compile(r"(?:aten::|triton_[a-z]+_fused_(?:\w*(?<!log))?)_softmax_backward_data")
_BENDS = re.compile(
    r"tanh|sigmoid|[rg]?elu|softplus|silu|mish|topk|sort|gather|scatter|clamp|pow|log(?!_softmax|ical)|abs"
    r"|minimum|maximum|cumsum|_sum(?=_|$)"
)  # a sum: of a bias's gradient
_KEEPS_SCORES = re.compile(
    r"aten::(?:(?:add|sub|rsub|mul|div|masked_fill|where|fill)_?|copy_|clone|zeros_like|native_dropout(?:_backward)?"
    r"|_fused_dropout|_masked_scale|bernoulli_)"
)
_MULTIPLIES = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|_scaled_mm|_grouped_mm)|triton_tem_\w+")
# What inductor never computes anew of itself: libraries' attention by many names, and flex_attention's template.
_ONLY_FORWARD_WORK = re.compile(
    r"aten::(?:\w*convolution|\w*attention)\w*|triton_tem_\w*(?:convolution|flex_attention)\w*|(?!aten)\w+::\w*atte?n\w*"
)
_SAYS_BACKWARD = re.compile(r"backward|bwd")
INDICES = ("long", "long int", "int")  # types of what names rows
# Operators that set a tensor to zero.
ZEROES = ("aten::zero_", FILLED)
# What goes over gradients between a backward and the optimizer: clipping, and a scaler.
_OF_GRADIENTS = re.compile(
    r"aten::(?:(?:linalg_vector_)?norm|_foreach_norm|_?(?:foreach_)?(?:mul|clamp)_?|_amp_foreach_non_finite\w+)"
)
_GENERATED_LOOKUP_BACKWARD = re.compile(r"triton_\w+_embedding_dense_backward(?:_|$)")
# What torch's `with_flops` counts: where the factors of a product stand, and the rest.
FLOP_FACTORS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
FLOP_BATCHED = ("aten::bmm", "aten::baddbmm")
FLOP_ELEMENTWISE = ("aten::mul", "aten::add")
CONVOLUTION = "aten::conv2d"
# What torch leaves out of its tree of calls, so that their time is their caller's.
UNCOUNTED = (
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
)

Family = Literal["library", "attention", "aten"]
Way = Literal["forward", "backward"]
Heavy = Literal["forward", "product", "gradient"]


def family_of(operator: str) -> Family | None:
    """Which kernels do the work of an operator: those of a library's products, of attention, or ATen's own."""
    if operator in PRODUCTS or operator in WINDOWS or operator == CONVOLUTION_BACKWARD:
        return "library"
    if operator in ATTENTION:
        return "attention"
    plain = plain_name(operator)
    return "aten" if any(rule.fullmatch(plain) for rule in (_ELEMENTWISE, _WRITTEN_ONLY, _SUMMED)) else None


def plain_name(operator: str) -> str:
    """ "aten::add_" → "add", but "copy_" stays what it is."""
    name = operator.removeprefix(ATEN)
    in_place = name.endswith("_") and not _WRITTEN_ONLY.fullmatch(name)
    return name[:-1] if in_place else name


def touches_arguments_only(operator: str) -> bool:
    """Whether its result is much smaller than its arguments, or is one of them that is not read."""
    plain = plain_name(operator)
    return bool(_SUMMED.fullmatch(plain) or _WRITTEN_ONLY.fullmatch(plain))


def only_allocates(operator: str) -> bool:
    """Whether its caller is who wanted the memory."""
    return _ALLOCATES.fullmatch(operator) is not None


def landmark_of(operator: str) -> str | None:
    """The work of an operator that eager and compiled code do alike, and in the same order."""
    name = operator.partition("::")[2]
    return next((work for work, pattern in _LANDMARKS if pattern.search(name)), None)


def is_library_operator(operator: str) -> bool:
    """Whether it is torch's own, and not a generated kernel's launch or a label."""
    return _LIBRARY.match(operator) is not None


def both_ways(operator: str) -> str:
    """A name that an operator shares with its backward, where theirs tell it: "aten::_cudnn_attention"."""
    return _WAY.sub("", operator)


def is_fusible(kernel: str) -> bool:
    """Whether a kernel of ATen's only passes over its data, so that inductor makes several of them one."""
    return _FUSIBLE_KERNEL.search(kernel) is not None


def is_cell(name: str) -> bool:
    """One step of a recurrent network, on the way forward or back."""
    return bool(_CELL.match(name) or _CELL_BACKWARD.match(name))


def is_generated_cast(kernel: str) -> bool:
    """A kernel of inductor's that does nothing but change the type of one tensor."""
    return _GENERATED_CAST.match(kernel) is not None


def scatters(kernel: str) -> bool:
    """Whether a kernel of ATen's puts numbers at the places that indices name: what is around it sorts these."""
    return _SCATTERING.search(kernel) is not None


def is_fused_optimizer(kernel: str) -> bool:
    """A kernel of an optimizer with `fused=True`: one pass over many parameters and their state."""
    return "FusedOptimizerTensorListMetadata" in kernel or "FusedSgd" in kernel


def is_fusible_in_graphs(kernel: str) -> bool:
    """Whether inductor made a kernel that it would fuse with its neighbours, were they in the same graph."""
    return _FUSIBLE_IN_GRAPHS.match(kernel) is not None


def only_looks(operator: str) -> bool:
    """Whether an operator gives another look at the same memory, or none at all: "aten.view", "view_3". It launches
    nothing."""
    return _LOOK.match(operator.removeprefix("aten.")) is not None


def softmax_way(operator: str) -> Way | None:
    """Whether an operator, or a generated kernel, computes a softmax or its gradient; None for what does neither, for
    the logarithm of one, and where something else is fused with it. What computes the softmax anew for its gradient is
    on the way back."""
    if _BENDS.search(operator):
        return None
    if _SOFTMAX_BACKWARD.match(operator):
        return "backward"
    return "forward" if _SOFTMAX.match(operator) else None


def keeps_scores(operator: str) -> bool:
    """Whether it does to the scores of attention what the fused operator can do: scale, bias, mask, dropout, casts."""
    generated = _FUSIBLE_IN_GRAPHS.match(operator)
    if generated:
        return generated[0] == "triton_poi_" and not _BENDS.search(operator)
    return _KEEPS_SCORES.fullmatch(operator) is not None


def multiplies_matrices(operator: str) -> bool:
    """Whether it is a product of matrices, batched or not, of a library's or from a template."""
    return _MULTIPLIES.fullmatch(operator) is not None


def looks_back(operator: str) -> bool:
    """Whether it makes a dense gradient of an embedding: torch's own, or a kernel that inductor generated for it, to
    fill that with zeros or to add to rows of it."""
    return operator in LOOKUP_BACKWARDS or _GENERATED_LOOKUP_BACKWARD.match(operator) is not None


def takes_lists(operator: str) -> bool:
    """Whether it does the same to each tensor of its lists."""
    return operator.startswith(("aten::_foreach_", "aten::_fused_"))


def goes_over_gradients(operator: str) -> bool:
    """Whether it is what norms, clips or scales gradients, between a backward and the optimizer."""
    return _OF_GRADIENTS.fullmatch(operator) is not None


def is_fused_attention(operator: str) -> bool:
    """Whether it is attention as one operator, whatever it falls back to."""
    return "scaled_dot_product" in operator


def heavy_work(operator: str) -> Heavy | None:
    """Of products of matrices, convolutions and attention: what a forward alone does, a product, which both ways do, or
    what a backward alone does. None for all else."""
    if not _ONLY_FORWARD_WORK.fullmatch(operator) and not multiplies_matrices(operator):
        return None
    if _SAYS_BACKWARD.search(operator):
        return "gradient"
    return "forward" if _ONLY_FORWARD_WORK.fullmatch(operator) else "product"


# Autograd's backward by name: the nodes that it runs, on threads of its own.


_NODE = "autograd::engine::evaluate_function: "  # around each node
_BACKWARD = re.compile(rf"{_NODE}|\w+Backward\d*$")


def is_backward(name: str) -> bool:
    """A node of the backward pass, a compiled graph's among them."""
    return _BACKWARD.match(name) is not None


def node(name: str) -> str:
    """The node that a slice runs: `MulBackward0`; any other name as it is."""
    return name.removeprefix(_NODE)


def is_node(name: str) -> bool:
    """What autograd's engine runs for one node of its graph."""
    return name.startswith(_NODE)


def is_plain_node(name: str) -> bool:
    """A node of its own that neither a checkpoint nor compiled code runs."""
    return is_node(name) and "Compiled" not in name and CHECKPOINT_BACKWARD not in name


def reduces_gradients(name: str) -> bool:
    """Where DDP and FSDP2 hand gradients to the other ranks, while a backward goes on."""
    return name == ACCUMULATES or name.startswith("FSDP::post_backward_reduce")


# What autograd runs behind each node in anomaly mode, to see whether its result holds a NaN.
NAN_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::any", "aten::item")
_KEEPS_STACK = re.compile(r"traceback\.py\(\d+\): format_stack$")


def keeps_stack(name: str) -> bool:
    """A Python function with which anomaly mode writes down where each node was made."""
    return _KEEPS_STACK.search(name) is not None


# where a gradient is kept, or added to one that is there
ACCUMULATES = f"{_NODE}torch::autograd::AccumulateGrad"
ACCUMULATION = "torch::autograd::AccumulateGrad"  # inside of that, with the gradient's shape
SUMS = ("aten::add", "aten::add_")  # of two gradients of one tensor that was used twice
ADDITION = "aten::add_"  # of a gradient to one that is there
# a reentrant one: it runs forward, and a backward of its own
CHECKPOINT_BACKWARD = "CheckpointFunctionBackward"
_RECOMPUTES = re.compile(r"torch[\\/]utils[\\/]checkpoint\.py\(\d+\): recompute_fn$")
# In a graph that dynamo captured: what a checkpoint becomes there.
_CAPTURED_CHECKPOINT = re.compile(r"torch\.ops\.higher_order\.(?:tag|wrap)_activation_checkpoint\(")
# Composed operators that only a forward calls: below a node of a backward they are computed for the second time.
_ONLY_FORWARD = re.compile(
    r"aten::(?:linear|conv[123]d|layer_norm|batch_norm|group_norm|rms_norm|scaled_dot_product_attention|dropout|embedding)$"
)


def recomputes(name: str) -> bool:
    """A Python function with which a checkpoint runs forward once more."""
    return _RECOMPUTES.search(name) is not None


def is_captured_checkpoint(statement: str) -> bool:
    """A line of a captured graph that runs what a checkpoint is around."""
    return _CAPTURED_CHECKPOINT.search(statement) is not None


def only_forward(name: str) -> bool:
    """An operator that no backward calls."""
    return _ONLY_FORWARD.match(name) is not None
