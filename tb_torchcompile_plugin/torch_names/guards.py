"""Guards as torch prints them: the one that failed, in prose, and the tree of all that are checked.

None of these texts is a contract upstream. Standard library only: this runs inside training.
"""

from __future__ import annotations

import re
from typing import Literal

from tb_torchcompile_plugin.torch_names.tracebacks import places

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
