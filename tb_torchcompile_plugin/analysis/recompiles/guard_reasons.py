"""One line of torch's recompile reasons, taken apart: which guard, on what, which value it had and has, what helps.

The lines are prose, not a contract: what is not understood keeps its text and has kind "other".
"""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.torch_names.graph_breaks import ENTRY, GuardKind, guarded_at, kind_of, number_kind


class FailedGuard(msgspec.Struct, frozen=True):
    """A guard of cache entry `entry` that did not hold.

    kind: tensor_size, tensor_property, shape, value, type, identity,
    length, global_state or other. old: what was compiled for; new: what came, null where torch does not tell."""

    entry: str | None
    text: str
    kind: GuardKind
    source: str | None
    old: str | None
    new: str | None
    file: str | None
    line: int | None
    advice: str


_LETTERS = 90  # of a guard in a title


def failed(guard: FailedGuard | None) -> str:
    """ "; the guard that failed: tensor 'x' size mismatch at index 0", "" without one."""
    return f"; the guard that failed: {_short(guard)}" if guard and _short(guard) else ""


def advice_of(guard: FailedGuard | None) -> str:
    """ "The guard that failed last is s == 0. If this number varies, …", "" where nothing is advised."""
    return f"The guard that failed last is {_short(guard)}. {guard.advice}" if guard and guard.advice else ""


def _short(guard: FailedGuard) -> str:
    """A guard's text may end in a comment of the compiler's, far to the right."""
    text = " ".join(guard.text.partition("  #")[0].split())
    return text[:_LETTERS] + ("…" if len(text) > _LETTERS else "")


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
    entry = ENTRY.match(reason)
    body = reason[entry.end() :] if entry else reason
    text = body.splitlines()[0] if body else ""
    guard, _, _ = text.partition("  #")
    kind, groups = kind_of(guard.strip())
    place = guarded_at(body)
    return FailedGuard(
        entry=entry["entry"] if entry else None,
        text=guard.strip(),
        kind=kind,
        source=groups.get("source"),
        old=groups.get("old"),
        new=groups.get("new"),
        file=place[0] if place else None,
        line=place[1] if place else None,
        advice=_advice(kind, groups),
    )


def _advice(kind: GuardKind, groups: dict[str, str | None]) -> str:
    topic = number_kind(groups.get("old") or "") if kind == "value" else kind
    known = {name: value or "it" for name, value in groups.items()}
    return _ADVICE[topic].format_map({"source": "it", "index": "0", **known})
