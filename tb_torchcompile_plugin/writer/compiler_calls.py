"""Note what decides whether code runs compiled, and transfers of the caches: torch's own log has no record of either.

torch's functions are wrapped; none of them runs in a steady step. Those of Dynamo are wrapped once it is loaded: this
never imports it.
"""

import contextlib
import functools
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from types import FrameType, MethodType
from typing import Any, TypeAlias

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer, CompilerCall, CompileSummary
from tb_torchcompile_plugin.torch_names.caches import LOAD_CALL, LOADED
from tb_torchcompile_plugin.torch_names.graph_breaks import is_accuracy_failure
from tb_torchcompile_plugin.torch_names.python_frames import is_user_file
from tb_torchcompile_plugin.torch_names.records import FRAME_ROOTS
from tb_torchcompile_plugin.writer.environment import loaded, setting

Note: TypeAlias = Callable[..., None]  # (result, args, kwargs, start in Unix ns, duration in ns)

MARK = "_notes_calls"  # of a wrapper; functools.wraps copies it to those around it
_MAX_CALLS = 256  # of each kind, the last ones: a program may call torch.compile in each step
_MAX_SKIPS = 16  # of each kind, the first ones: Dynamo skips a function once and for all
_MODE_CHECKS = (
    "is_in_torch_dispatch_mode",
    "is_in_any_mode_without_ignore_compile_internals",
    "any_torch_dispatch_mode_on_stack",
)
# Frames that Dynamo leaves alone in any program; an error that was hidden is in torch's log.
_USUAL_SKIPS = (
    "skipfiles",
    "already",
    "constructor",
    "no tensor-related",
    "error was suppressed",
    "while tracing",
    "custom frame execution strategy",
)

_calls: dict[str, deque[CompilerCall]] = {}
_methods: dict[Any, CompilerCall] = {}  # the last ones of `_calls`, by function
_transfers: list[CacheTransfer] = []
_called_before = False  # torch.compile, before this was wrapped
_notes_methods = False


def note_compiler_calls() -> None:
    """Wrap torch's functions once, except those that this torch does not have."""
    global _called_before, _notes_methods
    import torch

    _notes_methods = True
    if not hasattr(torch.compile, MARK):
        _called_before = _has_backends()
    _wrap(torch, "compile", _note_compile)
    _wrap(torch.compiler, "disable", _note_disable)
    _wrap(torch.compiler, "set_stance", lambda *_: _wrap_dynamo())
    _wrap(torch.compiler, "load_cache_artifacts", functools.partial(_note_transfer, load=True))
    _wrap(torch.compiler, "save_cache_artifacts", functools.partial(_note_transfer, load=False))
    _wrap_dynamo()


def forget_parent() -> None:
    """Forget, in the child of a fork, what its parent did. What the parent set or loaded holds in the child, too."""
    global _called_before
    _called_before = _called_before or "compile" in _calls
    for kind in set(_calls).difference(("stance", "disable", LOAD_CALL)):
        del _calls[kind]
    _methods.clear()
    _transfers.clear()


def put_compiler_calls(summary: CompileSummary, *, source: bool) -> None:
    """Add the calls and transfers of this process; reasons, which may quote the user's code, only with `source`."""
    summary.cache_transfers.extend(_transfers)
    for kind, calls in list(_calls.items()):
        for call in list(calls):
            row = summary.compiler_calls.add()
            row.CopyFrom(call)
            if kind == "skip" and not source:
                row.ClearField("reason")
    for number, call in enumerate(_calls.get(LOAD_CALL, ())):
        loaded_row = summary.compilations.add(function=call.subject, file=call.file, line=call.line)
        loaded_row.key.compile_id, loaded_row.elsewhere = f"{LOADED}/{number}", True
    summary.compiler_calls.sort(key=lambda row: row.start_ns)
    summary.environment.compile_called = _called_before or "compile" in _calls or _has_backends()


def _has_backends() -> bool:
    """Return whether Dynamo is set to use a backend; it forgets with torch._dynamo.reset()."""
    backends = loaded("torch._dynamo.eval_frame", "cached_backends", {})
    return any(map(callable, list(backends.values())))  # None is what disables


def _wrap(holder: Any, name: str, note: Note) -> None:
    if (original := getattr(holder, name, None)) is not None and not hasattr(original, MARK):
        setattr(holder, name, _noting(original, note))


def _noting(original: Callable[..., Any], note: Note) -> Any:
    """Return `original` with its calls noted; what it returns and raises stays as it is."""

    def call(*args: Any, **kwargs: Any) -> Any:
        start_ns, began = time.time_ns(), time.perf_counter_ns()
        result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # another torch
            note(result, args, kwargs, start_ns, time.perf_counter_ns() - began)
        return result

    return in_place_of(original, call)


def in_place_of(original: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` as a wrapper of torch's function, marked and hidden from Dynamo."""
    wrapper = functools.wraps(original)(call)
    hide_from_dynamo(wrapper, original)
    setattr(wrapper, MARK, True)
    return wrapper


def hide_from_dynamo(function: Any, original: Any) -> None:
    """Give the function the file of torch's function: Dynamo leaves those alone.

    Otherwise what is compiled as a whole gets frames and graph breaks that it did not have.
    """
    if code := getattr(original, "__code__", None):
        function.__code__ = function.__code__.replace(co_filename=code.co_filename)


def stop_noting_methods() -> None:
    """Stop noting methods of compiled modules, before Dynamo compiles: it would trace the wrapper."""
    global _notes_methods
    _notes_methods = False
    module = loaded("torch._dynamo.eval_frame", "OptimizedModule")
    if hasattr(getattr(module, "__getattr__", None), MARK):
        module.__getattr__ = module.__getattr__.__wrapped__


def _note_methods() -> None:
    """Note methods that are read from compiled modules: they are the original's, which they call uncompiled."""
    module = loaded("torch._dynamo.eval_frame", "OptimizedModule")
    if (original := getattr(module, "__getattr__", None)) is None or hasattr(original, MARK):
        return
    from torch.compiler import is_compiling

    def read(self: Any, name: str) -> Any:
        value = original(self, name)
        if name[:1] != "_" and isinstance(value, MethodType) and not is_compiling():  # 2 µs
            with contextlib.suppress(Exception):
                _note_method(value, name)
        return value

    module.__getattr__ = in_place_of(original, read)


def _note_method(method: MethodType, name: str) -> None:
    if row := _methods.get(method.__func__):
        row.duration_ns = time.time_ns() - row.start_ns
    elif len(_methods) < _MAX_SKIPS:
        _note("method", f"{_name(type(method.__self__))}.{name}")
        _methods[method.__func__] = _calls["method"][-1]


def _wrap_dynamo() -> None:
    """Wrap functions of modules that torch loads later, once they are loaded."""
    _wrap(sys.modules.get("torch.compiler.precompile"), "load", _note_load)
    decorators = sys.modules.get("torch._dynamo.decorators")
    if decorators is not None and not hasattr(getattr(decorators, "_set_stance", None), MARK):
        stance = loaded("torch._dynamo.eval_frame", "_stance")
        if getattr(stance, "stance", "default") != "default":
            _note("stance", stance.stance, _forced_backend(stance))
        _wrap(decorators, "_set_stance", _note_stance)
    convert = sys.modules.get("torch._dynamo.convert_frame")
    # Not what calls these: a further frame while Dynamo compiles would be in the stacks of its log.
    wrapper = getattr(convert, "CatchErrorsWrapper", None)
    if hasattr(wrapper, "_handle_skip"):
        _wrap(wrapper, "_handle_skip", _note_result)
    else:  # an older torch: whether there is a mode for which Dynamo skips
        for name in _MODE_CHECKS:
            _wrap(convert, name, _note_mode)
    # Not once anything was compiled: a guard may be about this function.
    times = loaded("torch._dynamo.utils", "compilation_time_metrics", FRAME_ROOTS)
    if _notes_methods and FRAME_ROOTS.isdisjoint(times):
        _note_methods()


def _note(kind: str, subject: str, reason: str = "", start_ns: int = 0, duration_ns: int = 0) -> None:
    call = CompilerCall(kind=kind, subject=readable(subject), reason=readable(reason))
    call.start_ns, call.duration_ns = start_ns or time.time_ns(), duration_ns
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_globals.get("__package__") == __package__ or not _is_users(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    if frame is not None:
        call.file, call.line = readable(frame.f_code.co_filename), frame.f_lineno
    _calls.setdefault(kind, deque(maxlen=_MAX_CALLS)).append(call)


_is_users = functools.lru_cache(maxsize=4096)(is_user_file)


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _note_compile(result: Any, args: Any, kwargs: Any, start_ns: int, duration_ns: int) -> None:
    _wrap_dynamo()
    model = args[0] if args else kwargs.get("model")
    if model is not None:  # otherwise the decorator that is returned calls this again
        _note("compile", _name(model), "", start_ns, duration_ns)


def _note_load(result: Any, args: Any, kwargs: Any, start_ns: int, duration_ns: int) -> None:
    path = args[0] if args else kwargs["artifact_path"]
    _note(LOAD_CALL, os.path.basename(path), "", start_ns, duration_ns)


def _note_disable(result: Any, args: Any, kwargs: Any, *times: int) -> None:
    function = args[0] if args else kwargs.get("fn")
    if _is_users(sys._getframe(2).f_code.co_filename):  # inductor disables each graph that it makes
        _note("disable", "" if function is None else _name(function))


def _note_stance(result: Any, args: Any, *rest: Any) -> None:
    _note("stance", args[0].stance, _forced_backend(args[0]))


def _forced_backend(stance: Any) -> str:
    backend = getattr(stance, "backend", None) or ""  # older versions of torch force none
    return backend if isinstance(backend, str) else _name(backend)


def _note_result(result: Any, args: Any, *rest: Any) -> None:
    """Note that Dynamo skipped a frame, with its reason."""
    _, outcome, frame = args
    if outcome.guarded_code is None:
        code = frame.f_code
        _note_skip(getattr(code, "co_qualname", code.co_name), str(outcome.skip_reason or ""))


def note_accuracy_failure(record: logging.LogRecord) -> None:
    """Note that results differ, where torch was asked to compare compiled graphs with eager code."""
    if is_accuracy_failure(text := record.getMessage()):
        _note("accuracy", "", text)


def _note_mode(is_in_mode: Any, *rest: Any) -> None:
    if is_in_mode:
        _note_skip("", "")


def _note_skip(function: str, reason: str) -> None:
    kind = "skip"
    if any(usual in reason for usual in _USUAL_SKIPS):
        return
    if setting("torch._dynamo.config.disable"):
        kind, reason = "disabled", ""
    elif modes := _dispatch_modes():
        kind, reason = "dispatch_mode", ", ".join(modes)
    if (reason or kind != "skip") and len(_calls.get(kind, ())) < _MAX_SKIPS:
        _note(kind, function, reason)


def _dispatch_modes() -> list[str]:
    """Return the classes of the active dispatch modes, without those of torch that Dynamo can handle."""
    modes: list[Any] = loaded("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack", list)()
    names = ("is_infra_mode", "ignore_compile_internals")
    return [
        _name(type(mode)).lstrip("_")
        for mode in modes
        if not any(getattr(mode, name, bool)() for name in names)
    ]


def _note_transfer(
    result: Any, args: Any, kwargs: Any, start_ns: int, duration_ns: int, *, load: bool
) -> None:
    row = CacheTransfer(load=load, start_ns=start_ns, duration_ns=duration_ns)
    _transfers.append(row)
    data, info = (args[0] if args else None, result) if load else (result or (None, None))
    if isinstance(data, bytes):
        row.size = len(data)
    for cache, keys in getattr(info, "artifacts", {}).items():
        row.entries[str(cache)] = len(keys)
