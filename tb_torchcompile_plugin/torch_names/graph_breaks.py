"""Graph breaks in torch's words, which differ from version to version: how one is told, and what kind of thing it was.

Seen: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.14 ("Graph Break Reason: …", hints, a docs link). Standard library
only: this runs inside training.
"""

from __future__ import annotations

import re
from typing import Literal

from tb_torchcompile_plugin.torch_names.python_frames import places

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


# Guards as torch prints them: the one that failed, in prose, and the tree of all that are checked. None of
# these texts is a contract upstream. Standard library only: this runs inside training.


GuardKind = Literal[
    "tensor_size",
    "tensor_property",
    "shape",
    "value",
    "type",
    "identity",
    "length",
    "global_state",
    "other",
]
# A line of the reasons to recompile: the cache entry, the guard, behind it the code that made torch guard it.
ENTRY = re.compile(r"^(?P<entry>!?\d+(?:/\d+)+): ")
_PLACE = re.compile(r"#\s*(?P<file>\S+):(?P<line>\d+) in (?P<function>\S+)")
_MISMATCH = re.compile(
    r"^tensor '(?P<source>.+?)' (?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device)"
    r" mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>.+?), actual (?P<new>.+?)$"
)
_GLOBAL = re.compile(r"^GLOBAL_STATE changed: (?P<source>.+)$")
_TYPE = re.compile(r"^___check_type_id\((?P<source>.+?), \d+\)(?:, type=<class '(?P<old>[^']+)'>)?")
_FOUND_TYPE = re.compile(r"^expected type of '(?P<source>.+?)' to be .*?found <class '(?P<new>[^']+)'>")
_IDENTITY = re.compile(r"^___check_obj_id\((?P<source>.+?), \d+\)")
_LENGTH = re.compile(r"^len\((?P<source>.+)\) == (?P<old>\d+)$")
_SHAPE = re.compile(r".*?(?P<source>\S+\.(?:size|stride)\(\)\[(?P<index>\d+)\])")
_VALUE = re.compile(r"^(?P<source>[^=<>!]+?) == (?P<old>.+)$")
_KINDS: tuple[tuple[GuardKind, re.Pattern[str]], ...] = (
    ("global_state", _GLOBAL),
    ("type", _TYPE),
    ("type", _FOUND_TYPE),
    ("identity", _IDENTITY),
    ("length", _LENGTH),
    ("shape", _SHAPE),
    ("value", _VALUE),
)
# A string in a guard, which may be cut off, or what is quoted but is a name: L['x'], and "tensor 'x' size mismatch".
STRING = re.compile(
    r"(?P<name>\b[LG]\['\w+'\]|\btensor '|'(?= (?:dispatch|dtype|Tensor|requires_grad|rank|size|stride) ))"
    r"|'(?:\\.|[^'\\])*(?:'|\\?$)|\"(?:\\.|[^\"\\])*(?:\"|\\?$)"
)
# The tree of guards: its nodes, what a node guards, lines behind the tree, and the code behind a guard.
TREE_NODE = re.compile(
    r"^(?P<bars>(?:\| )*)\+- (?P<label>[A-Z_a-z]\w*)(?: pair at index=\d+)?(?:: (?P<rest>.*))?$", re.DOTALL
)
TREE_SOURCE = re.compile(r"\bsource=(?P<source>.*?), (?:accessed_by|type)=", re.DOTALL)
TREE_AFTER = ("Guard latency = ", "Epilogue")
TREE_COMMENT = re.compile(r"\s+# ")
COMPARED = "EQUALS_MATCH"  # the kind of a guard that compares a number or a string with what it was
# An element of what a local or a global holds: those are no elements themselves, nor are the keys of a dict.
TREE_ELEMENT = re.compile(r"(?P<container>[LG]\[.+)\[(?:\d+|'[^'\]]*')\]", re.DOTALL)
TREE_PLACE = re.compile(r"# (?P<file>\S+):(?P<line>\d+) in \S+")


def kind_of(guard: str) -> tuple[GuardKind, dict[str, str | None]]:
    """What a guard that failed checks, and as far as it says: source, index, what, old and new."""
    if match := _MISMATCH.match(guard):
        return ("tensor_size" if match["what"] == "size" else "tensor_property"), match.groupdict()
    for kind, pattern in _KINDS:
        if match := pattern.match(guard):
            return kind, match.groupdict()
    return "other", {}


def guarded_at(reason: str) -> tuple[str, int] | None:
    """The user's line that a reason to recompile names. Its comment cuts long paths off at the left."""
    if place := next(places(reason), None):
        return place.file, place.line
    match = _PLACE.search(reason.partition("\n")[0])
    return (match["file"], int(match["line"])) if match else None


def number_kind(text: str) -> Literal["int", "float", "value"]:
    """What a value is that torch prints."""
    if re.fullmatch(r"-?\d+", text):
        return "int"
    return "float" if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+(\.\d*)?e-?\d+|inf|nan)", text) else "value"


# What torch says when it does not compile, or gives something up. Standard library only.


UNSUPPORTED = "Unsupported"  # what dynamo cannot trace, by the name of its exception
ERROR = "dynamo_error"  # the text of a compilation that failed
CUDAGRAPH_SKIPS = ("inductor", "cudagraph_skips")  # the counter, by group and name
# Why CUDA graphs are not used torch tells a logger alone, in words, and no record.
CUDAGRAPH_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"
_LIMIT = re.compile("RecompileLimit|CacheLimitExceeded|recompile.limit|cache_size_limit|cache size limit")
# A break in a loop or a with block that cannot be resumed: dynamo then leaves the whole frame alone.
_SKIPPED = re.compile(
    r"graph break in loop|frame skipped:|Skipping the frame and falling back to eager", re.I
)
_LAST_SILENT = (2, 8)
_CLASS = re.compile(r"<class '(?:.*\.)?(\w+)'>")
_SKIPS = ("skipping cudagraph", "disabling cudagraph")  # of a function or of a graph
_SKIPS_DUE_TO = re.compile(r"^(?:skipping cudagraphs? due to )+")  # torch may say it twice


def is_limit(kind: str, reason: str) -> bool:
    """Whether a frame was compiled too often, and not wrongly. kind: the exception."""
    return bool(_LIMIT.search(kind) or _LIMIT.search(reason))


def skips_frame(reason: str) -> bool:
    """Whether dynamo left the frame alone after a graph break: no error, whatever `suppress_errors` is."""
    return bool(_SKIPPED.search(reason))


def tells_skipped_frames(torch_version: str) -> bool:
    """Whether that torch writes a record of a frame that it leaves alone: 2.8 and older write none. "" is unknown."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    return not numbers or (int(numbers[1]), int(numbers[2])) > _LAST_SILENT


def exception_name(text: str) -> str:
    """torch 2.4 writes "<class 'torch._dynamo.exc.Unsupported'>", later ones "Unsupported"."""
    named = _CLASS.fullmatch(text)
    return named[1] if named else text


def says_trace_is_saved(text: str) -> bool:
    """Whether torch refuses to export a trace because it has done so: it exports each once."""
    return "already saved" in text


def says_cudagraphs_are_skipped(text: str) -> bool:
    """Of a line of that logger."""
    return text.startswith(_SKIPS)


def skip_reason(text: str) -> str:
    """Why CUDA graphs are skipped, in one line, without where."""
    reason = _SKIPS_DUE_TO.sub("", text.strip().splitlines()[0].partition(" Found from")[0].rstrip(". "))
    return reason.removesuffix(" (1 instances)")
