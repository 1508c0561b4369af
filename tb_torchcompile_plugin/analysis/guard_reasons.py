"""One line of torch's recompile reasons, taken apart: which guard, on what, which value it had and has, what helps.

The lines are prose, not a contract: what is not understood keeps its text and has kind "other".
"""

from __future__ import annotations

import re

import msgspec

_ENTRY = re.compile(r"^(?P<entry>!?\d+(?:/\d+)+): ")
_PLACE = re.compile(r"#\s*(?P<file>\S+):(?P<line>\d+) in (?P<function>\S+)")
_STACK_PLACE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in ', re.MULTILINE)
_MISMATCH = re.compile(
    r"^tensor '(?P<source>.+?)' (?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device)"
    r" mismatch(?: at index (?P<index>\d+))?\. expected (?P<old>.+?), actual (?P<new>.+?)$"
)
_GLOBAL = re.compile(r"^GLOBAL_STATE changed: (?P<source>.+)$")
_TYPE = re.compile(r"^___check_type_id\((?P<source>.+?), \d+\)(?:, type=<class '(?P<old>[^']+)'>)?")
_FOUND_TYPE = re.compile(r"^expected type of '(?P<source>.+?)' to be .*?found <class '(?P<new>[^']+)'>")
_IDENTITY = re.compile(r"^___check_obj_id\((?P<source>.+?), \d+\)")
_LENGTH = re.compile(r"^len\((?P<source>.+)\) == (?P<old>\d+)$")
_SHAPE = re.compile(r"(?P<source>\S+\.(?:size|stride)\(\)\[(?P<index>\d+)\])")
_VALUE = re.compile(r"^(?P<source>[^=<>!]+?) == (?P<old>.+)$")


class FailedGuard(msgspec.Struct, frozen=True):
    """A guard of cache entry `entry` that did not hold.

    kind: tensor_size, tensor_property, shape, value, type, identity,
    length, global_state or other. old: what was compiled for; new: what came, null where torch does not tell."""

    entry: str | None
    text: str
    kind: str
    source: str | None
    old: str | None
    new: str | None
    file: str | None
    line: int | None
    advice: str


_ADVICE = {
    "tensor_size": "If this size varies, call torch._dynamo.mark_dynamic({source}, {index}) before the first call, "
    "or compile with dynamic=True. For a data set whose last batch is shorter, drop_last=True avoids it.",
    "tensor_property": "Bring {source} to one dtype, device, layout and requires_grad before the call.",
    "shape": "The graph was compiled for one range of this size. Use mark_dynamic with min and max, or mark_unbacked "
    "if no specialization is wanted, before the first call.",
    "float": "Each new value of this float may compile again. Hoist it: pass it as a tensor, or keep it outside of "
    "the compiled function.",
    "int": "If this number varies, pass it as a tensor, or use torch._dynamo.mark_unbacked on the tensor whose size it "
    "is; for an attribute of a module, set torch._dynamo.config.allow_unspec_int_on_nn_module = True.",
    "value": "A constant of the program changed. Compile one function for each value, or pass it as a tensor.",
    "type": "{source} came with another type. Convert it to one type before the call.",
    "identity": "{source} is another object than the one that was compiled for. Create it once and keep it, or pass it "
    "as an argument.",
    "length": "The number of elements of {source} changed. Keep it constant, or stack the elements into one tensor.",
    "global_state": "A global setting differs between calls: {source}. Call under one setting (for evaluation, compile "
    "a second function), or use torch.compiler.set_stance.",
    "other": "See the guard's text; TORCH_LOGS=guards,recompiles prints all guards of each entry.",
}


def failed_guard(reason: str) -> FailedGuard:
    """Take one reason apart. Never raises."""
    entry = _ENTRY.match(reason)
    body = reason[entry.end() :] if entry else reason
    text = body.splitlines()[0] if body else ""
    guard, _, _ = text.partition("  #")
    kind, found = _kind(guard.strip())
    place = _STACK_PLACE.search(body) or _PLACE.search(text)  # the comment cuts long paths off at the left
    groups = found.groupdict() if found else {}
    return FailedGuard(
        entry=entry["entry"] if entry else None,
        text=guard.strip(),
        kind=kind,
        source=groups.get("source"),
        old=groups.get("old"),
        new=groups.get("new"),
        file=place["file"] if place else None,
        line=int(place["line"]) if place else None,
        advice=_advice(kind, groups),
    )


def _kind(guard: str) -> tuple[str, re.Match[str] | None]:
    if found := _MISMATCH.match(guard):
        return ("tensor_size" if found["what"] == "size" else "tensor_property"), found
    for kind, pattern in (
        ("global_state", _GLOBAL),
        ("type", _TYPE),
        ("type", _FOUND_TYPE),
        ("identity", _IDENTITY),
    ):
        if found := pattern.match(guard):
            return kind, found
    if found := _LENGTH.match(guard):
        return "length", found
    if found := _SHAPE.search(guard):
        return "shape", found
    if found := _VALUE.match(guard):
        return "value", found
    return "other", None


def _advice(kind: str, groups: dict[str, str | None]) -> str:
    if kind == "value":
        kind = _number(groups.get("old") or "")
    known = {name: value or "it" for name, value in groups.items()}
    return _ADVICE[kind].format_map({"source": "it", "index": "0", **known})


def _number(text: str) -> str:
    if re.fullmatch(r"-?\d+", text):
        return "int"
    return "float" if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+(\.\d*)?e-?\d+|inf|nan)", text) else "value"
