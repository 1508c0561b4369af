"""Autograd's backward by name: the nodes that it runs, on threads of its own."""

from __future__ import annotations

import re

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
