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
