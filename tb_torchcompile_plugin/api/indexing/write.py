"""Writes the digest of one trace beside it, or elsewhere; one that is there already is left alone."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest.file import is_current, load, save
from tb_torchcompile_plugin.job.digest.make import claimed, digest
from tb_torchcompile_plugin.job.job import calls_of_each
from tb_torchcompile_plugin.logdir.discovery import SpanFile, WorkerFiles
from tb_torchcompile_plugin.logdir.filesystem import File, is_remote, local_file
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.cache.store import is_stored, open_trace
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_compile_data
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace

_compiled = Memo(1)  # the spans of a worker come one after the other


class Order(NamedTuple):
    """worker, span: what the digest is made of. path: where it goes to, a path or URL. there: what lies at a URL.
    beside: the digest beside the trace, where it goes elsewhere. ranks: how many are there, for traces that do not tell
    how large their job is."""

    worker: WorkerFiles
    span: SpanFile
    path: str
    there: File | None = None
    beside: File | None = None
    ranks: int = 1


def write_digest(order: Order, trace: Trace | None = None) -> Literal["written", "there already"]:
    """In this process alone. trace: where it was read already. Raises UserError, OSError where the digest cannot be
    written, and whatever a question about the trace raises."""
    there = order.there if is_remote(order.path) else local_file(order.path)
    if is_current(there, order.span.file):
        return "there already"
    if is_current(order.beside, order.span.file) and order.beside:
        save(load(order.beside), order.path)
        return "written"
    _check_writable(order.path)
    save(_profile(order, trace or _read(order.span.file)).of(digest), order.path)
    return "written"


def _read(file: File) -> Trace:
    """Nothing is kept of it; what is in the cache already is used."""
    with copies.local(file, keep=False) as path:
        trace = (open_trace if is_stored(path) else read_trace)(path, workers=1)
    return replace(trace, notices=copies.named(trace.notices, path, file))


def _profile(order: Order, trace: Trace) -> Profile:
    ranks = claimed(trace, "world_size") or order.ranks  # whoever of the job has left traces here
    return Profile(trace, _compile_data(order.worker), order.span, calls_of_each(ranks))


def _compile_data(worker: WorkerFiles) -> CompileData | None:
    files = worker.compile_files
    return _compiled.get(files, lambda: read_compile_data(worker), keep=lambda _: True)[0] if files else None


def _check_writable(path: str) -> None:
    """Before the trace is read for nothing."""
    folder = os.path.dirname(path)
    if not is_remote(path) and os.path.isdir(folder) and not os.access(folder, os.W_OK):
        raise UserError(
            "this folder cannot be written", file=folder, next_step="Name another one with --out DIR"
        )
