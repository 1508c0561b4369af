"""Graph breaks, guards and what torch does not compile, in torch's words, which differ from version to version.

Breaks: torch 2.4 to 2.6 ("Reason: …") and 2.7 to 2.15 ("Graph Break Reason: …", hints, a docs link). Guards: the one
that failed, in prose, and the tree of all that are checked. None of these texts is a contract upstream.

Standard library only: this runs inside training.
"""

import re
from collections.abc import Callable
from typing import Literal

from tb_torchcompile_plugin.torch_names.patterns import begins, contains, first_match
from tb_torchcompile_plugin.torch_names.python_frames import traceback_frames

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
_TO_THE_NEXT = r": (?P<text>.*?)(?=^ *Hint: |^ *Developer debug context:|^ *For more |^\S|\Z)"
EXPLANATION = re.compile(rf"^ *Explanation{_TO_THE_NEXT}", re.M | re.S)
HINT = re.compile(rf"^ *Hint{_TO_THE_NEXT}", re.M | re.S)
DOCS = re.compile(r"please visit: (?P<url>https?://\S+)")
STACK_HEADS = ("User code traceback:", "from user code:", "User Stack:")
BRANCH = "Data-dependent branching"  # of the user's code; inside, torch calls it by the second word
BRANCH_INSIDE = "generic_jump"

# The reason, in words of torch 2.4 to 2.13.
_BY_REASON: Callable[[str], BreakKind] = first_match(
    (
        "explicit",
        r"_dynamo\.graph_break|function graph_break in|_dynamo\.(?:skip_frame|step_unsupported)|Comptime",
    ),
    ("disabled", r"compiler\.disable|_dynamo\.disable"),
    (
        "print",
        r"(?i)BuiltinVariable\(print\)|\bprint\b|logging|Logger not supported|\bwarnings?\.warn|debugging function",
    ),
    ("item", r"Tensor\.(?:item|tolist)|\.item\(\)|_local_scalar_dense|capture_scalar_outputs"),
    (
        "data_dependent",
        r"(?i)data[- ]dependent|generic_jump|dynamic shape operator|dynamic slicing|symbolic shapes|unbacked",
    ),
    ("context_manager", r"(?i)context manager|ContextWrapping|ContextVariable|\bwith block"),
    ("exception", r"(?i)\bexcept(?:ion)?\b|\braise\b"),
    ("generator", r"(?i)generator|\biterators?\b|\byield\b"),
    ("builtin", r"(?i)built-?in|C/C\+\+|C function|C extension"),
    ("operator", r"(?i)\bop(?:erator)?\b|fake tensor|FakeTensor|meta kernel|aten\.|torch\.\* op"),
    (
        "call",
        r"(?i)marked as skipped|Skip(?:Function|Files)|skip(?:ped)? function|inline in skipfiles"
        r"|call_(?:function|method)|(?:function|method) call",
    ),
    default="other",
)
_calls_print = contains(r"`print`|\blogging\.|`?warnings\.warn")


def break_kind(reason: str, explanation: str = "") -> BreakKind:
    """Return the kind of a graph break, `other` where no word of its reason is known.

    The explanation names the builtin or the skipped function that was called.
    """
    kind = _BY_REASON(reason)
    return "print" if kind in ("builtin", "call", "other") and _calls_print(explanation) else kind


# A hint of torch's that says nothing of what broke: there is nothing to do about this one.
is_generic_hint = begins(
    r"This graph break (?:is fundamental|may have been caused by an earlier|may be difficult)"
    r"|It may be possible to write Dynamo tracing rules|This is likely to be a Dynamo bug|Please report an issue"
)

GuardKind = Literal[
    "tensor_size", "tensor_property", "shape", "value", "type", "identity", "length", "global_state", "other"
]

# A line of the reasons to recompile: the cache entry, the guard, after it the code that made torch guard it.
ENTRY = re.compile(r"^(?P<entry>!?\d+(?:/\d+)+): ")
_PLACE = re.compile(r"#\s*(?P<file>\S+):(?P<line>\d+) in (?P<function>\S+)")
_MISMATCH = re.compile(
    r"^tensor '(?P<source>.+?)' (?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device)"
    r" mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>.+?)(?:, actual (?P<new>.+?))?(?:\. Guard .+)?$"
)
is_of_self = contains(r"\bself\b")  # a guard; newer versions of torch write `self` for `L['self']`
ADDRESS = re.compile(r", \d{9,}(?=\))")  # of an object, in a guard: it differs in each process
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_GUARDS: tuple[tuple[GuardKind, str], ...] = (
    ("global_state", r"GLOBAL_STATE changed: (?P<source>.+)$"),
    ("type", r"___check_type_id\((?P<source>.+?), \d+\)(?:, type=<class '(?P<old>[^']+)'>)?"),
    ("type", r"expected type of '(?P<source>.+?)' to be .*?found <class '(?P<new>[^']+)'>"),
    ("identity", r"___check_obj_id\((?P<source>.+?), \d+\)"),
    ("length", r"len\((?P<source>.+)\) [=!]= (?P<old>\d+)$"),
    ("shape", r".*?(?P<source>\S+\.(?:size|stride)\(\)\[(?P<index>\d+)\])"),
    ("value", r"(?P<source>[^=<>!]+?) == (?P<old>.+)$"),
)


def guard_kind(guard: str) -> tuple[GuardKind, dict[str, str | None]]:
    """Return what a guard that failed checks, and as far as it says: source, index, what, old and new."""
    if match := _MISMATCH.match(guard):
        return ("tensor_size" if match["what"] == "size" else "tensor_property"), match.groupdict()
    for kind, pattern in _GUARDS:
        if match := re.match(pattern, guard):
            return kind, match.groupdict()
    return "other", {}


def difference(kind: GuardKind, source: str) -> str:
    """Return "the size of self.up.bias" for `self._modules['up']._parameters['bias']`; of values only their name."""
    subjects: dict[GuardKind, str] = {"tensor_size": "the size of ", "type": "the type of "}
    return subjects.get(kind, "") + _MEMBER.sub(r".\1", source)


def guarded_at(reason: str) -> tuple[str, int] | None:
    """Return the user's line that a reason to recompile names. Its comment cuts off the left part of long paths."""
    if frame := next(traceback_frames(reason), None):
        return frame.file, frame.line
    match = _PLACE.search(reason.partition("\n")[0])
    return (match["file"], int(match["line"])) if match else None


def number_kind(text: str) -> Literal["int", "float", "value"]:
    """Return the type of a value that torch prints."""
    if re.fullmatch(r"-?\d+", text):
        return "int"
    return "float" if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+(\.\d*)?e-?\d+|inf|nan)", text) else "value"


# A string in a guard, which may be cut off, or what is quoted but is a name: L['x'], and "tensor 'x' size mismatch".
STRING = re.compile(
    r"(?P<name>\b[LG]\['\w+'\]|\btensor '|'(?= (?:dispatch|dtype|Tensor|requires_grad|rank|size|stride) ))"
    r"|'(?:\\.|[^'\\])*(?:'|\\?$)|\"(?:\\.|[^\"\\])*(?:\"|\\?$)"
)
# The tree of guards: its nodes, what a node guards, lines after the tree, and the code after a guard.
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

# What torch says when it does not compile, or gives something up.
UNSUPPORTED = "Unsupported"  # what dynamo cannot trace, by the name of its exception
ERROR = "dynamo_error"  # the text of a compilation that failed
FOUND_FROM = "Found from"  # in inductor's errors: the user's line follows
ACCURACY_LOGGER = "torch._dynamo.repro.after_aot"  # compares results with TORCHDYNAMO_REPRO_LEVEL=4
is_accuracy_failure = begins("Accuracy failed")  # a line of ACCURACY_LOGGER
# Variables with which torch compares graphs with eager code (none of a cache), writes each graph as a script before it
# compiles it, and writes one that fails in the same way (by the name of the exception).
CHECK_ACCURACY = "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 TORCHDYNAMO_REPRO_AFTER=aot TORCHDYNAMO_REPRO_LEVEL=4"
KEEP_SCRIPTS = "TORCHDYNAMO_REPRO_AFTER=aot TORCHDYNAMO_REPRO_LEVEL=3"
REPEAT_FAILURE = {
    "InductorError": "TORCHDYNAMO_REPRO_AFTER=aot",
    "BackendCompilerFailed": "TORCHDYNAMO_REPRO_AFTER=dynamo",
}
SHOW_MORE = "TORCHDYNAMO_VERBOSE=1"  # of what Dynamo itself cannot compile
CUDAGRAPH_SKIPS = ("inductor", "cudagraph_skips")  # the counter, by group and name
# Why CUDA graphs are not used torch writes to a logger alone, in words, and to no record.
CUDAGRAPH_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"
# Of torch 2.15, when too many sizes came.
CUDAGRAPH_LIMIT_LOGGER = "torch._inductor.cudagraph_trees.__cudagraphs"
_OF_GRAPH = r"\[(?P<compile_id>[^\]]*)\] (?P<mode>\w+) graph hit "  # how that line begins
_LAST_SILENT = (2, 8)  # the newest torch that writes no record of skipped frames
_has_limit = contains(r"RecompileLimit|CacheLimitExceeded|recompile.limit|cache_size_limit|cache size limit")
# A break in a loop or a with block that cannot be resumed: dynamo leaves the whole frame alone. No error, whatever
# `suppress_errors` is.
skips_frame = contains(r"(?i)graph break in loop|frame skipped:|Skipping the frame and falling back to eager")
is_trace_already_saved = contains(r"already saved")  # torch exports a trace only once
is_cudagraph_skip = begins(rf"(?:skipp|disabl)ing cudagraph|{_OF_GRAPH}")  # a line of these loggers


def is_limit(exception: str, reason: str) -> bool:
    """Whether a frame was compiled too often, and not wrongly."""
    return _has_limit(exception) or _has_limit(reason)


def records_skipped_frames(torch_version: str) -> bool:
    """Whether that torch writes a record of a frame that it leaves alone. "" is unknown."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    return not numbers or (int(numbers[1]), int(numbers[2])) > _LAST_SILENT


def exception_name(text: str) -> str:
    """Return the name of an exception: torch 2.4 writes "<class 'torch._dynamo.exc.Unsupported'>"."""
    class_name = re.fullmatch(r"<class '(?:.*\.)?(\w+)'>", text)
    return class_name[1] if class_name else text


def skipped_compile_id(text: str) -> str:
    """Return the compile id that a reason to skip CUDA graphs names, "" if none."""
    match = re.match(_OF_GRAPH, text)
    return match["compile_id"] if match else ""


def short_skip_reason(text: str) -> str:
    """Return why CUDA graphs are skipped, in one line, without where."""
    line = text.strip().splitlines()[0].partition(" Found from")[0].rstrip(". ")
    # torch may say "due to" twice.
    return re.sub(rf"^(?:skipping cudagraphs? due to |{_OF_GRAPH})+", "", line).removesuffix(" (1 instances)")
