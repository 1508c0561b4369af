"""Notes where the program saves or loads all cache entries as one: torch itself writes nothing about it to its log."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer, CompileSummary

_MARK = "_notes_cache_transfers"


class _Function(NamedTuple):
    name: str
    load: bool


_FUNCTIONS = (_Function("load_cache_artifacts", True), _Function("save_cache_artifacts", False))
_rows: list[CacheTransfer] = []


def note_cache_transfers() -> None:
    """From now on. Does nothing on a torch without these functions (before 2.6), or a second time."""
    import torch.compiler as compiler

    for function in _FUNCTIONS:
        original = getattr(compiler, function.name, None)
        if original is not None and not hasattr(original, _MARK):
            setattr(compiler, function.name, _noting(original, load=function.load))


def put_cache_transfers(summary: CompileSummary) -> None:
    summary.cache_transfers.extend(_rows)


def _noting(original: Callable[..., Any], *, load: bool) -> Callable[..., Any]:
    """`original`, with its time noted; what it returns and raises stays as it is."""

    @functools.wraps(original)
    def transfer(*args: Any, **kwargs: Any) -> Any:
        start_ns, began = time.time_ns(), time.perf_counter_ns()
        result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # of a torch that returns something else
            _rows.append(_row(load, start_ns, time.perf_counter_ns() - began, result, args))
        return result

    setattr(transfer, _MARK, True)
    return transfer


def _row(load: bool, start_ns: int, duration_ns: int, result: Any, args: tuple[Any, ...]) -> CacheTransfer:
    row = CacheTransfer(load=load, start_ns=start_ns, duration_ns=duration_ns)
    data, info = (args[0] if args else None, result) if load else (result or (None, None))
    if isinstance(data, bytes):
        row.size = len(data)
    for cache, keys in getattr(info, "artifacts", {}).items():
        row.entries[str(cache)] = len(keys)
    return row
