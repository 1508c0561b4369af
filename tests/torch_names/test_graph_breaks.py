"""graph_break_kinds.py: torch's words of many versions."""

import pytest

from tb_torchcompile_plugin.torch_names.graph_breaks import break_kind


@pytest.mark.parametrize(
    ("reason", "explanation", "kind"),
    [
        ("Call to `torch._dynamo.graph_break()`", "User-inserted graph break. Message: None", "explicit"),
        ("'skip function graph_break in file /x/torch/_dynamo/decorators.py'", "", "explicit"),
        ("Skip calling `torch.compiler.disable()`d function", "", "disabled"),
        ("call torch._dynamo.disable() wrapped function <function f>", "", "disabled"),
        (
            "Failed to trace builtin operator",
            "Dynamo does not know how to trace builtin operator `print` with",
            "print",
        ),
        (
            "Failed to trace builtin operator",
            "Dynamo does not know how to trace builtin operator `open`",
            "builtin",
        ),
        ("call_function BuiltinVariable(print) [ConstantVariable()] {}", "", "print"),
        ("logging.Logger method not supported for non-export cases", "", "print"),
        ("Logger not supported for non-export cases", "", "print"),
        (
            "Unsupported method call",
            "Dynamo does not know how to trace method `log` of class `Logger`",
            "call",
        ),
        (
            "Attempted to call function marked as skipped",
            "Dynamo developers have marked `warnings.warn`",
            "print",
        ),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "", "item"),
        ("Tensor.item", "", "item"),
        (
            "Data-dependent branching",
            "Detected data-dependent branching (e.g. `if x.sum().item() > 0`)",
            "data_dependent",
        ),
        ("generic_jump TensorVariable()", "", "data_dependent"),
        ("dynamic shape operator: aten.nonzero.default; to enable, set …", "", "data_dependent"),
        ("Attempted to call function marked as skipped", "", "call"),
        ("Unsupported context manager", "", "context_manager"),
        ("Observed exception", "", "exception"),
        ("Attempt to trace generator", "", "generator"),
        ("Operator does not support running with fake tensors", "", "operator"),
        ("something torch has not said yet", "", "other"),
        ("", "", "other"),
    ],
)
def test_a_reason_has_a_kind(reason: str, explanation: str, kind: str) -> None:
    assert break_kind(reason, explanation) == kind
