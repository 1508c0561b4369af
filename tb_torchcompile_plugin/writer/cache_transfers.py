"""Note when the program saves or loads all cache entries at once: torch's own log has no record of it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheTransfer, CompileSummary

_LOADS = {"load_cache_artifacts": True, "save_cache_artifacts": False}  # function of torch.compiler → loads?
_MARK = "_notes_cache_transfers"
_rows: list[CacheTransfer] = []


def note_cache_transfers() -> None:
    """Wrap torch's functions once. Does nothing on a torch without them (before 2.6)."""
    import torch.compiler as compiler

    for name, load in _LOADS.items():
        original = getattr(compiler, name, None)
        if original is not None and not hasattr(original, _MARK):
            setattr(compiler, name, _noting(original, load=load))


def put_cache_transfers(summary: CompileSummary) -> None:
    """Add the transfers of this process."""
    summary.cache_transfers.extend(_rows)


def _noting(original: Callable[..., Any], *, load: bool) -> Callable[..., Any]:
    """Return `original` with its calls noted; what it returns and raises stays as it is."""

    @functools.wraps(original)
    def transfer(*args: Any, **kwargs: Any) -> Any:
        start_ns, began = time.time_ns(), time.perf_counter_ns()
        result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # a torch that returns something else
            row = CacheTransfer(load=load, start_ns=start_ns, duration_ns=time.perf_counter_ns() - began)
            data, info = (args[0] if args else None, result) if load else (result or (None, None))
            if isinstance(data, bytes):
                row.size = len(data)
            for cache, keys in getattr(info, "artifacts", {}).items():
                row.entries[str(cache)] = len(keys)
            _rows.append(row)
        return result

    setattr(transfer, _MARK, True)
    return transfer
