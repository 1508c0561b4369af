"""Graph breaks in torch's words, which differ from version to version: how one is told, and what kind of thing it was.

Seen: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.14 ("Graph Break Reason: …", hints, a docs link). Standard library
only: this runs inside training.
"""

from __future__ import annotations

import re
from typing import Literal

BreakKind = Literal[
    "explicit",
    "disabled",
    "print",
    "item",
    "data_dependent",
    "builtin",
    "call",
    "operator",
    "context_manager",
    "exception",
    "generator",
    "other",
]

# Where a text says what.
BREAK_AT = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)")
REASON = re.compile(r"^(?:Graph Break )?Reason: (?P<reason>.*)$", re.MULTILINE)
EXPLANATION = re.compile(
    r"^ *Explanation: (?P<text>.*?)(?=^ *Hint: |^ *Developer debug context:|^ *For more |^\S|\Z)", re.M | re.S
)
HINT = re.compile(
    r"^ *Hint: (?P<text>.*?)(?=^ *Hint: |^ *Developer debug context:|^ *For more |^\S|\Z)", re.M | re.S
)
DOCS = re.compile(r"please visit: (?P<url>https?://\S+)")
STACK_HEADS = ("User code traceback:", "from user code:", "User Stack:")
BRANCH = "Data-dependent branching"  # of the user's code; inside, torch calls it by the second word
BRANCH_INSIDE = "generic_jump"

# The first that the reason matches. Words of torch 2.4 to 2.13.
_REASONS: dict[BreakKind, re.Pattern[str]] = {
    "explicit": re.compile(
        r"_dynamo\.graph_break|function graph_break in|_dynamo\.(?:skip_frame|step_unsupported)|Comptime"
    ),
    "disabled": re.compile(r"compiler\.disable|_dynamo\.disable"),
    "print": re.compile(
        r"BuiltinVariable\(print\)|\bprint\b|logging|Logger not supported|\bwarnings?\.warn|debugging function",
        re.IGNORECASE,
    ),
    "item": re.compile(r"Tensor\.(?:item|tolist)|\.item\(\)|_local_scalar_dense|capture_scalar_outputs"),
    "data_dependent": re.compile(
        r"data[- ]dependent|generic_jump|dynamic shape operator|dynamic slicing|symbolic shapes|unbacked",
        re.IGNORECASE,
    ),
    "context_manager": re.compile(
        r"context manager|ContextWrapping|ContextVariable|\bwith block", re.IGNORECASE
    ),
    "exception": re.compile(r"\bexcept(?:ion)?\b|\braise\b", re.IGNORECASE),
    "generator": re.compile(r"generator|\biterators?\b|\byield\b", re.IGNORECASE),
    "builtin": re.compile(r"built-?in|C/C\+\+|C function|C extension", re.IGNORECASE),
    "operator": re.compile(
        r"\bop(?:erator)?\b|fake tensor|FakeTensor|meta kernel|aten\.|torch\.\* op", re.IGNORECASE
    ),
    "call": re.compile(
        r"marked as skipped|Skip(?:Function|Files)|skip(?:ped)? function|inline in skipfiles|call_(?:function|method)"
        r"|(?:function|method) call",
        re.IGNORECASE,
    ),
}
_CALLED: dict[BreakKind, re.Pattern[str]] = {"print": re.compile(r"`print`|\blogging\.|`?warnings\.warn")}


def break_kind(reason: str, explanation: str = "") -> BreakKind:
    """`other` where no word of it is known. The explanation tells which builtin or skipped function was called."""
    kind = _first(_REASONS, reason) or "other"
    return (_first(_CALLED, explanation) or kind) if kind in ("builtin", "call", "other") else kind


# What torch says of any break: nothing to do about this one.
_OF_ANY = re.compile(
    r"This graph break (?:is fundamental|may have been caused by an earlier|may be difficult)"
    r"|It may be possible to write Dynamo tracing rules|This is likely to be a Dynamo bug|Please report an issue"
)


def is_of_any_break(hint: str) -> bool:
    """Whether a hint of torch's says nothing of what broke."""
    return _OF_ANY.match(hint) is not None


def _first(patterns: dict[BreakKind, re.Pattern[str]], text: str) -> BreakKind | None:
    return next((kind for kind, pattern in patterns.items() if pattern.search(text)), None)
