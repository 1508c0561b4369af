"""ATen's operators by name: what each computes, where its arguments are, and what autograd runs."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.torch_names.patterns import begins, contains, equals, first_match, without

ATEN = "aten::"
CONTIGUOUS, CAST, JOIN = "aten::contiguous", "aten::_to_copy", "aten::cat"
# What torch runs in place of atomic additions, and after each allocation, under torch.use_deterministic_algorithms.
SCATTERS = tuple(
    f"aten::{name}"
    for name in ("scatter_add", "scatter_add_", "index_add", "index_add_", "scatter", "scatter_")
)
SORTED_INSTEAD, FILLED = "aten::index_put_", "aten::fill_"
ALLOCATES_ONLY = tuple(f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "resize_"))
# What torch leaves out of its tree of calls, so that their time is their caller's.
UNCOUNTED = (
    *(f"profiler::_record_function_{name}" for name in ("enter", "enter_new", "exit")),
    *("aten::is_leaf", "aten::output_nr", "aten::_version"),
)

DISPATCH_MODE = "PythonDispatchMode"  # around what a TorchDispatchMode of the program gets

# Types of tensors' elements.
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

# Where the two factors are among the arguments.
PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
# Where padding, stride and dilation begin among the arguments.
WINDOWS = {"aten::cudnn_convolution": 2, "aten::miopen_convolution": 3}
CONVOLUTION_BACKWARD = "aten::convolution_backward"
# What torch's `with_flops` counts: where the factors of a product are, and the rest.
FLOP_FACTORS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
FLOP_BATCHED = ("aten::bmm", "aten::baddbmm")
FLOP_ELEMENTWISE = ("aten::mul", "aten::add")
CONVOLUTION = "aten::conv2d"


class AttentionArguments(NamedTuple):
    """Where the arguments of an attention operator are."""

    query: int
    sequence: int  # the axis of a query that counts its positions
    causal: int
    backward: bool = False


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


# Those that make a dense gradient of an embedding.
_LOOKUP_BACKWARDS = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")

# What an operator of ATen's does. Of the first two: one result, as large as the arguments together make it; with a `_`
# at the end it takes the place of the first argument, which `_WRITTEN_ONLY` does not read.
_ELEMENTWISE = (
    r"abs|add|addcdiv|addcmul|clamp|clamp_min|cos|div|elu|exp|gelu|gelu_backward|hardtanh|leaky_relu|lerp|log|masked_fill|"
    r"maximum|minimum|mul|native_layer_norm|neg|pow|reciprocal|relu|rsqrt|rsub|sigmoid|sigmoid_backward|silu|silu_backward|"
    r"sin|softplus|sqrt|sub|tanh|tanh_backward|threshold_backward|where|_softmax|_log_softmax"
)
_WRITTEN_ONLY = "copy_|fill_|zero_"
_SUMMED = "sum|mean|prod|amax|amin|max|min|argmax|argmin|norm|linalg_vector_norm|var|std"
_is_written_only = equals(_WRITTEN_ONLY)
_is_aten = equals(f"{_ELEMENTWISE}|{_WRITTEN_ONLY}|{_SUMMED}")
_shrinks = equals(f"{_SUMMED}|{_WRITTEN_ONLY}")

Family = Literal["library", "attention", "aten"]


def family_of(operator: str) -> Family | None:
    """Return whose kernels compute an operator: a library's for products, those of attention, or ATen's own."""
    if operator in PRODUCTS or operator in WINDOWS or operator == CONVOLUTION_BACKWARD:
        return "library"
    if operator in ATTENTION:
        return "attention"
    return "aten" if _is_aten(plain_name(operator)) else None


def plain_name(operator: str) -> str:
    """Return "add" of "aten::add_", but "copy_" as it is."""
    name = operator.removeprefix(ATEN)
    return name[:-1] if name.endswith("_") and not _is_written_only(name) else name


def is_argument_bound(operator: str) -> bool:
    """Whether its result is much smaller than its arguments, or is one of them that is not read."""
    return _shrinks(plain_name(operator))


# Whether its caller is who wanted the memory.
only_allocates = equals(
    r"aten::((new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|resize_|to|_to_copy|clone)"
)
# Whether it is torch's own, and not a generated kernel's launch or a label.
is_library_operator = begins(r"(?:aten|c10d|nccl|record_param_comms)\b")
is_fused_attention = contains("scaled_dot_product")  # one operator, whatever it falls back to
is_foreach = begins(r"aten::_(?:foreach|fused)_")  # does the same to each tensor of its lists
# Another view of the same memory, or nothing at all: "aten.view", "view_3". It launches nothing.
is_view = begins(
    r"(?:aten\.)?(?:_?unsafe_)?(?:view|_view|reshape|_reshape_alias|permute|transpose|t|expand|unsqueeze|squeeze|select"
    r"|slice|split|chunk|unbind|detach|alias|as_strided|getitem|size|flatten|contiguous|to)(?:_as)?(?:_\d+)?(?:\.\w+)?$"
)
# A dense gradient of an embedding: torch's own operator, or a kernel that inductor generated, which fills it with zeros
# or adds to rows of it.
is_embedding_backward = begins(
    rf"(?:{'|'.join(_LOOKUP_BACKWARDS)})\Z|triton_\w+_embedding_dense_backward(?:_|$)"
)
# A product of matrices, batched or not, of a library's or from a template.
multiplies_matrices = equals(r"aten::(?:mm|addmm|bmm|baddbmm|_scaled_mm|_grouped_mm)|triton_tem_\w+")
# One step of a recurrent network, forward as nn.LSTMCell and its kin call it, or backward as autograd runs it.
is_cell = begins(
    r"aten::(?:lstm|gru|rnn_tanh|rnn_relu)_cell$"
    r"|autograd::engine::evaluate_function: Thnn(?:Fused|Differentiable)\w*CellBackward\d*$"
)
# The work of an operator by which eager and compiled code, which do it in the same order, can be aligned.
landmark_of: Callable[[str], str | None] = first_match(
    ("convolution", r"::.*conv"),
    ("attention", r"::.*attention"),
    ("gemm", r"^\w*::_?(addmm|mm|bmm|baddbmm|addbmm|linear|matmul|scaled_mm|grouped_mm|addmv|mv|dot)"),
    default=None,
)
# The name that an operator shares with its backward, if their names show it: "aten::_cudnn_attention".
without_direction = without(r"_(?:forward|backward)$")
# Kernels that operators launch, and those that inductor generates.
# One of ATen's that only passes over its data, so that inductor makes several of them one.
is_fusible = contains(r"at::native::.*(?:elementwise_kernel|reduce_kernel|[sS]oft[mM]ax|[nN]orm|CatArray)")
# One that inductor would fuse with its neighbours, were they in the same graph.
is_fusible_in_graphs = begins(r"triton_(?:poi|red|per)_")
# One that changes the type of one tensor, and does nothing else.
is_generated_cast = begins(r"triton_poi_fused__to_copy(?:_\d+)?$")
# Puts numbers at the places that indices name: the operator around it sorts these.
scatters = contains(r"indexing_backward_kernel|index_put|index_elementwise_kernel|scatter")
is_sort = contains(r"(?i)sort")  # a kernel of a sort: cub's, or one of ATen's own
# Of an optimizer with `fused=True`: one pass over many parameters and their state.
is_fused_optimizer = contains(r"FusedOptimizerTensorListMetadata|FusedSgd")

# Attention that is written out. A generated kernel's name lists the operators that it fused; a softmax that torch's own
# attention falls back to is called a safe one, and that of a loss is logarithmic.
_BENDS = (
    r"tanh|sigmoid|[rg]?elu|softplus|silu|mish|topk|sort|gather|scatter|clamp|pow|log(?!_softmax|ical)|abs"
    r"|minimum|maximum|cumsum|_sum(?=_|$)"  # a sum: of a bias's gradient
)
Way = Literal["forward", "backward"]
# Whether an operator, or a generated kernel, computes a softmax or its gradient. None for what does neither, for the
# logarithm of one, and where something else is fused with it. What recomputes the softmax for its gradient counts as
# backward.
softmax_direction: Callable[[str], Way | None] = first_match(
    (None, _BENDS),
    ("backward", r"^(?:aten::|triton_[a-z]+_fused_(?:\w*(?<!log))?)_softmax_backward_data"),
    (
        "forward",
        r"^(?:aten::|triton_[a-z]+_fused_(?:\w*(?<!log)(?<!safe)(?<!prepare))?)_softmax(?!_backward|_online)",
    ),
    default=None,
)
_keeps_scores = equals(
    r"aten::(?:(?:add|sub|rsub|mul|div|masked_fill|where|fill)_?|copy_|clone|zeros_like|native_dropout(?:_backward)?"
    r"|_fused_dropout|_masked_scale|bernoulli_)"
)


def is_score_step(operator: str) -> bool:
    """Whether it does to the scores of attention what the fused operator can do: scale, bias, mask, dropout, casts."""
    if is_fusible_in_graphs(operator):
        return operator.startswith("triton_poi_") and re.search(_BENDS, operator) is None
    return _keeps_scores(operator)


# What inductor never recomputes by itself: libraries' attention by many names, and flex_attention's template.
_is_forward_work = equals(
    r"aten::(?:\w*convolution|\w*attention)\w*|triton_tem_\w*(?:convolution|flex_attention)\w*|(?!aten)\w+::\w*atte?n\w*"
)


def heavy_work(operator: str) -> Literal["forward", "product", "gradient"] | None:
    """Return who does a product of matrices, a convolution or attention: forward, both ("product"), or backward only.

    None for everything else.
    """
    is_forward_work = _is_forward_work(operator)
    if not is_forward_work and not multiplies_matrices(operator):
        return None
    if "backward" in operator or "bwd" in operator:
        return "gradient"
    return "forward" if is_forward_work else "product"


# Autograd's backward: the nodes that it runs, on threads of its own.
_NODE = "autograd::engine::evaluate_function: "  # around each node
# Where a gradient is kept, or added to one that is there.
ACCUMULATES = f"{_NODE}torch::autograd::AccumulateGrad"
ADDITION = "aten::add_"  # of a gradient to one that is there
# A reentrant checkpoint: it runs forward, and a backward of its own.
CHECKPOINT_BACKWARD = "CheckpointFunctionBackward"
# What autograd runs after each node in anomaly mode, to see whether its result holds a NaN.
NAN_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::any", "aten::item")

# a node of the backward pass, a compiled graph's among them
is_backward = begins(rf"{_NODE}|\w+Backward\d*$")
node_name = without(rf"^{_NODE}")  # the node that a slice runs, `MulBackward0`; any other name as it is
is_node = begins(_NODE)  # what autograd's engine runs for one node of its graph
# A node of its own that neither a checkpoint nor compiled code runs.
is_plain_node = begins(rf"(?s:{_NODE}(?!.*(?:Compiled|{CHECKPOINT_BACKWARD})))")
# Where DDP and FSDP2 hand gradients to the other ranks, while a backward runs.
reduces_gradients = begins(rf"{ACCUMULATES}\Z|FSDP::post_backward_reduce")
# A Python function with which anomaly mode notes where each node was made.
is_anomaly_stack = contains(r"traceback\.py\(\d+\): format_stack$")
# A Python function with which a checkpoint runs forward once more.
is_checkpoint_recompute = contains(r"torch[\\/]utils[\\/]checkpoint\.py\(\d+\): recompute_fn$")
# A line of a graph that dynamo captured, which runs what a checkpoint is around.
is_captured_checkpoint = contains(r"torch\.ops\.higher_order\.(?:tag|wrap)_activation_checkpoint\(")
# Composed operators that only a forward calls: below a node of a backward they are computed for the second time.
is_forward_only = begins(
    r"aten::(?:linear|conv[123]d|layer_norm|batch_norm|group_norm|rms_norm|scaled_dot_product_attention|dropout|embedding)$"
)
