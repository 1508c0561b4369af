"""Read which configurations autotuning chose, and what Triton compiled (`tensorboard_trace_handler(…, triton=True)`).

Choices, registers, spills and shared memory of each configuration come from inductor's autotuners, which are in the
modules of generated code that torch keeps loaded; texts of the one in use from Triton's cache folder; times of
configurations from the messages of the autotuner's logger, and those of templates from a callback that inductor has for
it. All is read when a summary is written, each file once. Reading the choices takes microseconds per graph.
"""

import base64
import contextlib
import importlib
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary import PayloadStore
from tb_torchcompile_plugin.torch_names.artifacts import TRITON_TEXTS
from tb_torchcompile_plugin.torch_names.kernels import launches
from tb_torchcompile_plugin.torch_names.records import (
    TUNING_LOGGER,
    TunedConfig,
    compile_id_of,
    config_text,
    parse_tuned_config,
    tuned_kernel,
)
from tb_torchcompile_plugin.writer.environment import compiling_now, loaded

_METADATA = "json"
# Fields of a row, by inductor's and Triton's names.
_NUMBERS = {
    "registers": "n_regs",
    "spills": "n_spills",
    "shared_bytes": "shared",
    "num_warps": "num_warps",
    "num_stages": "num_stages",
}
_CONFIG_FIELDS = re.compile(r"\b(num_warps|num_stages)=(\d+)")
# Bounds on what a process keeps. Texts compress to a tenth: 32 MB add about 3 MB to a summary.
_MAX_TEXT_BYTES = 1 << 20  # of one text
_MAX_TEXTS_BYTES = 32 << 20  # of all texts
_MAX_ROWS = 4096  # kernels
_MAX_TIMES = 64  # of one kernel, before it is tuned again
_Texts = dict[str, bytes]  # name of the artifact → text


def add_autotune_choices(summary: pb.CompileSummary) -> None:
    """Fill in `config` of kernels that had a choice and have made it: torch does not record it."""
    graphs = [graph for graph in summary.graphs if any(map(_lacks_config, graph.kernels))]
    for _, kernel, tuners in _autotuners(graphs):
        configs = {_config_in_use(tuner) for tuner in tuners} - {""}
        if _lacks_config(kernel) and len(configs) == 1:
            kernel.config = configs.pop()


def _lacks_config(kernel: pb.GeneratedKernel) -> bool:
    return kernel.num_configs > 1 and not kernel.config


def _autotuners(graphs: Iterable[pb.Graph]) -> Iterator[tuple[pb.Graph, pb.GeneratedKernel, list[Any]]]:
    """Yield the autotuners of each kernel with its graph, where torch keeps the generated code loaded."""
    cache = loaded("torch._inductor.codecache", "PyCodeCache")
    modules = {getattr(module, "__file__", ""): module for module in list(getattr(cache, "modules", ()))}
    for graph in graphs:
        variables = vars(modules[graph.output_code_file]) if graph.output_code_file in modules else {}
        tuners = {name: value for name, value in variables.items() if _is_autotuner(value)}
        for kernel in graph.kernels:
            # The variable of a user's own kernel ends with a number that its name does not have.
            if found := [tuner for name, tuner in tuners.items() if launches(name, kernel.name)]:
                yield graph, kernel, found


def _is_autotuner(value: object) -> bool:
    """Return whether it launches a Triton kernel of inductor's."""
    return any(kind.__name__ == "CachingAutotuner" for kind in type(value).__mro__)


def _config_in_use(tuner: Any) -> str:
    """Return block sizes, then warps and stages, as torch's own records have it; "" before there is a choice."""
    launchers = list(getattr(tuner, "launchers", ()))
    if len(launchers) != 1:
        return ""
    config = launchers[0].config
    sizes = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


class TritonFiles:
    """What Triton compiled in this process, kept for the next summaries."""

    def __init__(self, reporting: Callable[[str], AbstractContextManager[None]]) -> None:
        """reporting: a block that ends where it raises, with a problem to report."""
        self._reporting = reporting
        self._times: dict[str, list[TunedConfig]] = {}  # by kernel
        self._tuned_kernel = ""  # whose times the next messages are
        self._templates: list[pb.CompiledKernel] = []
        self._files: dict[str, tuple[_Texts, dict[str, Any]]] = {}
        self._bytes = 0

    def started(self) -> "TritonFiles":
        """Record from now on. Imports inductor, which every compilation does anyway."""
        logger = logging.getLogger(TUNING_LOGGER)
        if not any(isinstance(other, _TuningFilter) for other in logger.filters):
            logger.addFilter(_TuningFilter(logger.getEffectiveLevel(), self._take_message))
            logger.setLevel(logging.DEBUG)
        algorithms = importlib.import_module("torch._inductor.select_algorithm")
        if hasattr(algorithms, "add_feedback_saver"):
            algorithms.add_feedback_saver(self._take_templates)
        return self

    def _take_message(self, record: logging.LogRecord) -> None:
        with self._reporting("results of autotuning cannot be read"):
            line = record.getMessage()
            if kernel := tuned_kernel(line):
                self._tuned_kernel, self._times[kernel] = kernel, self._times.get(kernel, [])[-_MAX_TIMES:]
            elif row := parse_tuned_config(line):
                self._times.setdefault(self._tuned_kernel, []).append(row)

    def _take_templates(
        self, timings: dict[Any, float], name: str, inputs: Iterable[Any] = (), *_: Any, **__: Any
    ) -> None:
        """Called by inductor, with the time of each choice in ms."""
        with self._reporting("times of templates cannot be read"):
            finite = {choice: ms for choice, ms in timings.items() if math.isfinite(ms)}
            best = min(finite, key=finite.__getitem__, default=None)
            # "addmm (1024x512, 512x256)", as torch's own records have it: a graph has several of one name
            sizes = ["x".join(map(str, node.get_size())) for node in inputs]
            operator = f"{name} ({', '.join(sizes)})" if sizes else name
            key = pb.CompileKey(compile_id=compile_id_of(compiling_now()))
            for choice, ms in finite.items():
                fields = (str(getattr(choice, field, "") or "") for field in ("name", "description"))
                config = readable(": ".join(filter(None, fields)))
                row = pb.CompiledKernel(key=key, name=operator, config=config, time_us=1000 * ms)
                row.chosen = choice is best
                self._templates.append(row)
            del self._templates[:-_MAX_ROWS]

    def put(self, summary: pb.CompileSummary, *, texts: bool) -> None:
        """Add the kernels (at most _MAX_ROWS rows), and with `texts` what they were compiled to."""
        summary.compiled_kernels.extend(self._templates)
        store = PayloadStore(summary)
        for graph, kernel, tuners in _autotuners(summary.graphs):
            for tuner in tuners:
                rows = self._rows(graph, kernel.name, tuner)
                summary.compiled_kernels.extend(rows[: _MAX_ROWS - len(summary.compiled_kernels)])
                for row in rows if texts else ():
                    if row.chosen:
                        _add_texts(summary, store, row, self._read(row.cache_key)[0])

    def _rows(self, graph: pb.Graph, kernel: str, tuner: Any) -> list[pb.CompiledKernel]:
        # One result per configuration; once torch has dropped the others, that of the one in use.
        results = getattr(tuner, "compile_results", None) or getattr(tuner, "launchers", None) or []
        rows = [self._row(graph, kernel, result) for result in results]
        in_use = _config_in_use(tuner)
        for row in rows:
            row.chosen = len(rows) == 1 or row.config == in_use
        return rows

    def _row(self, graph: pb.Graph, kernel: str, result: Any) -> pb.CompiledKernel:
        compiled, config = getattr(result, "kernel", result), getattr(result, "config", None)
        row = pb.CompiledKernel(key=graph.key, name=kernel, direction=graph.direction)
        row.config = config_text(str(config)) if config is not None else ""
        row.cache_key = str(getattr(result, "cache_hash", "") or _cache_key(getattr(compiled, "hash", None)))
        details = self._read(row.cache_key)[1]
        numbers = {name: int(number) for name, number in _CONFIG_FIELDS.findall(row.config)}
        holders = (compiled, getattr(compiled, "metadata", None))
        for field, name in _NUMBERS.items():
            values = (
                numbers.get(name),
                *(getattr(holder, name, None) for holder in holders),
                details.get(name),
            )
            number = next((value for value in values if type(value) is int and value >= 0), None)
            if number is not None:
                setattr(row, field, number)
        target = details.get("target")
        if isinstance(target, dict):
            row.target = readable(f"{target.get('backend', '')} {target.get('arch', '')}".strip())
        # As measured last. Kernels of several graphs may have one name: registers and spills distinguish them.
        for times in reversed(self._times.get(row.name, [])):
            if (times.config, times.registers, times.spills) == (row.config, row.registers, row.spills):
                row.time_us = times.time_us
                break
        return row

    def _read(self, cache_key: str) -> tuple[_Texts, dict[str, Any]]:
        if cache_key and cache_key not in self._files and self._bytes < _MAX_TEXTS_BYTES:
            folder = next(
                (path for root in _roots() if os.path.isdir(path := os.path.join(root, cache_key))), ""
            )
            texts: _Texts = {}
            for name in sorted(os.listdir(folder)) if folder else ():
                ending, path = name.rpartition(".")[2], os.path.join(folder, name)
                is_kept = ending in TRITON_TEXTS or (ending == _METADATA and not name.startswith("__grp__"))
                if is_kept and os.path.getsize(path) <= _MAX_TEXT_BYTES:
                    with open(path, "rb") as file:
                        texts[TRITON_TEXTS.get(ending, _METADATA)] = file.read(_MAX_TEXT_BYTES)
            details: dict[str, Any] = {}
            with contextlib.suppress(ValueError, TypeError):  # the file is being written
                details = dict(json.loads(texts.pop(_METADATA, b"{}")))
            self._bytes += sum(map(len, texts.values()))
            self._files[cache_key] = texts, details
        return self._files.get(cache_key, ({}, {}))


class _TuningFilter(logging.Filter):
    """Takes what a logger receives below the level that it had, and lets nothing of that through."""

    def __init__(self, level: int, take: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._level, self._take = level, take  # take must not raise: a filter's exceptions are the caller's

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the record; let it pass from the logger's own level on."""
        self._take(record)
        return record.levelno >= self._level


def _cache_key(digest: object) -> str:
    """Return the folder of a kernel in Triton's cache: its hash in base 32."""
    try:
        return base64.b32encode(bytes.fromhex(str(digest or ""))).decode().rstrip("=")
    except ValueError:
        return ""


def _roots() -> list[str]:
    """Return Triton's cache folders: the one that is set, and inductor's, one per device."""
    inductor = sys.modules.get("torch._inductor.runtime.cache_dir_utils") or sys.modules.get(
        "torch._inductor.runtime.runtime_utils"
    )
    parent = os.path.join(inductor.cache_dir(), "triton") if inductor is not None else ""
    by_device = [os.path.join(parent, name) for name in os.listdir(parent)] if os.path.isdir(parent) else []
    roots = [os.environ.get("TRITON_CACHE_DIR", ""), *by_device, os.path.expanduser("~/.triton/cache")]
    return [path for path in dict.fromkeys(roots) if path and os.path.isdir(path)]


def _add_texts(
    summary: pb.CompileSummary, store: PayloadStore, row: pb.CompiledKernel, texts: _Texts
) -> None:
    for name, text in texts.items():
        artifact = summary.artifacts.add(name=f"{name}_{row.name}", payload=store.add(text), size=len(text))
        artifact.key.CopyFrom(row.key)
        artifact.direction = row.direction
