"""What Triton made of inductor's kernels, where the user asks for it: `tensorboard_trace_handler(…, triton=True)`.

Registers, spills and shared memory of each configuration come from inductor's autotuners, which torch keeps; texts of
the one in use from Triton's cache folder; times of configurations from what the autotuner tells its logger, and those
of templates from a callback that inductor has for it. All is read when a summary is written, each file once.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import logging
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, GeneratedKernel
from tb_torchcompile_plugin.torch_names.artifacts import TRITON_TEXTS
from tb_torchcompile_plugin.torch_names.kernels import launches
from tb_torchcompile_plugin.torch_names.records import (
    TUNING_LOGGER,
    Measured,
    compile_id_of,
    config_text,
    measured,
    tuned_kernel,
)
from tb_torchcompile_plugin.writer.environment import compiling_now

# Which configuration won, of kernels tuned when they first run? torch does not record it; its autotuners
# know. They lie in the modules of generated code that torch keeps loaded. Reading them costs microseconds
# for each graph.


def add_winners(summary: CompileSummary) -> None:
    """Fills in `config` of kernels that had a choice and have made it."""
    open_choices = [
        (graph.output_code_file, kernel)
        for graph in summary.graphs
        for kernel in graph.kernels
        if kernel.num_configs > 1 and not kernel.config
    ]
    if not open_choices:
        return
    modules = {getattr(module, "__file__", ""): module for module in generated_modules()}
    for file, kernel in open_choices:
        if file in modules:
            kernel.config = _winner(vars(modules[file]), kernel)


def generated_modules() -> Iterable[Any]:
    """The modules of generated code that torch keeps loaded."""
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    return list(getattr(cache, "modules", ()))


def _winner(names: dict[str, Any], kernel: GeneratedKernel) -> str:
    """The variable of a user's own kernel ends with a number that its name has not."""
    configs = {
        _text(value.launchers[0].config)
        for name, value in names.items()
        if launches(name, kernel.name) and is_autotuner(value) and len(value.launchers) == 1
    }
    return configs.pop() if len(configs) == 1 else ""


def config_of(tuner: Any) -> str:
    """The configuration in use; "" before there is one."""
    launchers = list(getattr(tuner, "launchers", ()))
    return _text(launchers[0].config) if len(launchers) == 1 else ""


def is_autotuner(value: object) -> bool:
    """Whether it is what launches a Triton kernel of inductor's."""
    return any(kind.__name__ == "CachingAutotuner" for kind in type(value).__mro__)


def _text(config: Any) -> str:
    """As torch's own records have it: block sizes, then warps and stages."""
    sizes = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


_METADATA = "json"
_SIZES = re.compile(r"\b(num_warps|num_stages)=(\d+)")
_MOST_TEXT = 1 << 20  # bytes of one text
_MOST_TEXTS = 32 << 20  # of all of a process
_MOST_ROWS = 4096
_Texts = dict[str, bytes]  # name of the artifact → text


class TritonFiles:
    """Keeps what is read, for the summaries to come. `report` is told what went wrong."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._tuning: dict[str, list[Measured]] = {}
        self._tuned = ""
        self._templates: list[pb.CompiledKernel] = []
        self._files: dict[str, tuple[_Texts, dict[str, Any]]] = {}
        self._bytes = 0

    def listening(self) -> TritonFiles:
        """From now on. Imports inductor, which whoever compiles does anyway."""
        _hear(logging.getLogger(TUNING_LOGGER), self._take_record)
        algorithms = importlib.import_module("torch._inductor.select_algorithm")
        if hasattr(algorithms, "add_feedback_saver"):
            algorithms.add_feedback_saver(self._take_templates)
        return self

    def _take_record(self, record: logging.LogRecord) -> None:
        try:
            self._take_line(record.getMessage())
        except Exception as error:
            self._report("what autotuning tells cannot be read", error)

    def _take_line(self, line: str) -> None:
        if kernel := tuned_kernel(line):
            self._tuned, self._tuning[kernel] = kernel, self._tuning.get(kernel, [])[-64:]
        elif row := measured(line):
            self._tuning.setdefault(self._tuned, []).append(row)

    def _take_templates(
        self, timings: dict[Any, float], name: str, inputs: Iterable[Any] = (), *_: Any, **__: Any
    ) -> None:
        """Called by inductor, with the time of each choice in ms."""
        try:
            finite = {choice: ms for choice, ms in timings.items() if math.isfinite(ms)}
            best = min(finite, key=finite.__getitem__, default=None)
            operator = _with_sizes(name, inputs)
            for choice, ms in finite.items():
                self._templates.append(_template(operator, choice, ms, chosen=choice is best))
            del self._templates[:-_MOST_ROWS]
        except Exception as error:
            self._report("the times of templates cannot be read", error)

    def put(self, summary: pb.CompileSummary, *, texts: bool) -> None:
        """Adds the kernels, and with `texts` what they were compiled to. At most _MOST_ROWS rows."""
        summary.compiled_kernels.extend(self._templates)
        known = {payload.sha256: place for place, payload in enumerate(summary.payloads)}
        for graph, kernel, tuner in _autotuners(summary.graphs):
            rows = [self._row(graph, kernel, result) for result in _results(tuner)]
            in_use = config_of(tuner)
            for row in rows:
                row.chosen = len(rows) == 1 or row.config == in_use
            summary.compiled_kernels.extend(rows[: _MOST_ROWS - len(summary.compiled_kernels)])
            for row in rows if texts else ():
                if row.chosen:
                    _keep_texts(summary, row, self._read(row.cache_key, row.name)[0], known)

    def _row(self, graph: pb.Graph, kernel: str, result: Any) -> pb.CompiledKernel:
        compiled, config = getattr(result, "kernel", result), _config(result)
        row = pb.CompiledKernel(key=graph.key, name=kernel, config=config, direction=graph.direction)
        for field, name in (("registers", "n_regs"), ("spills", "n_spills"), ("shared_bytes", "shared")):
            value = _number(compiled, name)
            if value is not None:
                setattr(row, field, value)
        for field, number in _SIZES.findall(config):
            setattr(row, field, int(number))
        row.cache_key = str(getattr(result, "cache_hash", "") or _cache_key(getattr(compiled, "hash", None)))
        _fill_from_file(row, self._read(row.cache_key, kernel)[1])
        time_us = self._time_us(row)
        if time_us is not None:
            row.time_us = time_us
        return row

    def _time_us(self, row: pb.CompiledKernel) -> float | None:
        """As measured last. Kernels of several graphs may have one name: registers and spills tell them apart."""
        same = (
            one.time_us
            for one in reversed(self._tuning.get(row.name, []))
            if (one.config, one.registers, one.spills) == (row.config, row.registers, row.spills)
        )
        return next(same, None)

    def _read(self, cache_key: str, kernel: str) -> tuple[_Texts, dict[str, Any]]:
        if cache_key and cache_key not in self._files and self._bytes < _MOST_TEXTS:
            folder = next(
                (path for root in _roots() if os.path.isdir(path := os.path.join(root, cache_key))), ""
            )
            texts = _texts_in(folder) if folder else {}
            details = _details(texts.pop(_METADATA, b"{}"))
            self._bytes += sum(map(len, texts.values()))
            self._files[cache_key] = texts, details
        return self._files.get(cache_key, ({}, {}))


class _TuningLines(logging.Filter):
    """Takes what a logger is told below the level that it had, and lets nothing of that through."""

    def __init__(self, level: int, take: Callable[[logging.LogRecord], None]) -> None:
        """take: never raises, as a filter's exceptions are the caller's."""
        super().__init__()
        self._level, self._take = level, take

    def filter(self, record: logging.LogRecord) -> bool:
        self._take(record)
        return record.levelno >= self._level


def _hear(logger: logging.Logger, take: Callable[[logging.LogRecord], None]) -> None:
    if not any(isinstance(one, _TuningLines) for one in logger.filters):
        logger.addFilter(_TuningLines(logger.getEffectiveLevel(), take))
        logger.setLevel(logging.DEBUG)


def _autotuners(graphs: Iterable[pb.Graph]) -> Iterator[tuple[pb.Graph, str, Any]]:
    """The autotuner of each generated Triton kernel, where its code is still loaded."""
    modules = {getattr(module, "__file__", ""): vars(module) for module in generated_modules()}
    for graph in graphs:
        tuners = [
            (name, one) for name, one in modules.get(graph.output_code_file, {}).items() if is_autotuner(one)
        ]
        for kernel in graph.kernels:
            for name, tuner in tuners:
                if launches(name, kernel.name):
                    yield graph, kernel.name, tuner


def _results(tuner: Any) -> list[Any]:
    """What it compiled of each configuration; once torch has dropped the others, of the one in use."""
    return list(getattr(tuner, "compile_results", None) or getattr(tuner, "launchers", None) or [])


def _config(result: Any) -> str:
    config = getattr(result, "config", None)
    return config_text(str(config)) if config is not None else ""


def _number(compiled: Any, name: str) -> int | None:
    value = getattr(compiled, name, None)
    if value is None:
        value = getattr(getattr(compiled, "metadata", None), name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _cache_key(digest: object) -> str:
    """The folder of a kernel in Triton's cache: its hash in base 32."""
    try:
        return base64.b32encode(bytes.fromhex(str(digest or ""))).decode().rstrip("=")
    except ValueError:
        return ""


def _roots() -> list[str]:
    """Triton's cache folders: the one that is set, and inductor's, one for each device."""
    inductor = sys.modules.get("torch._inductor.runtime.cache_dir_utils") or sys.modules.get(
        "torch._inductor.runtime.runtime_utils"
    )
    below = os.path.join(inductor.cache_dir(), "triton") if inductor is not None else ""
    own = [os.path.join(below, name) for name in os.listdir(below)] if os.path.isdir(below) else []
    known = [os.environ.get("TRITON_CACHE_DIR", ""), *own, os.path.expanduser("~/.triton/cache")]
    return [path for path in dict.fromkeys(known) if path and os.path.isdir(path)]


def _texts_in(folder: str) -> _Texts:
    texts: _Texts = {}
    for name in sorted(os.listdir(folder)):
        ending = name.rpartition(".")[2]
        path = os.path.join(folder, name)
        wanted = ending in TRITON_TEXTS or (ending == _METADATA and not name.startswith("__grp__"))
        if wanted and os.path.getsize(path) <= _MOST_TEXT:
            with open(path, "rb") as file:
                texts[TRITON_TEXTS.get(ending, _METADATA)] = file.read(_MOST_TEXT)
    return texts


def _details(text: bytes) -> dict[str, Any]:
    """{} of a file that is being written."""
    try:
        details = json.loads(text)
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}


def _fill_from_file(row: pb.CompiledKernel, details: dict[str, Any]) -> None:
    for field, name in (("num_warps", "num_warps"), ("num_stages", "num_stages"), ("shared_bytes", "shared")):
        if isinstance(details.get(name), int) and not row.HasField(field):
            setattr(row, field, details[name])
    target = details.get("target")
    if isinstance(target, dict):
        row.target = readable(f"{target.get('backend', '')} {target.get('arch', '')}".strip())


def _keep_texts(
    summary: pb.CompileSummary, row: pb.CompiledKernel, texts: _Texts, known: dict[bytes, int]
) -> None:
    """Each text once, as all payloads. known: the places of those that are there."""
    for name, text in texts.items():
        digest = hashlib.sha256(text).digest()
        if digest not in known:
            known[digest] = len(summary.payloads)
            summary.payloads.add(sha256=digest, codec=pb.Payload.ZLIB, data=zlib.compress(text, 6))
        artifact = summary.artifacts.add(name=f"{name}_{row.name}", payload=known[digest], size=len(text))
        artifact.key.CopyFrom(row.key)
        artifact.direction = row.direction


def _with_sizes(operator: str, inputs: Iterable[Any]) -> str:
    """ "addmm (1024x512, 512x256)", as torch's own records have it: a graph has several of one name."""
    sizes = ["x".join(map(str, one.get_size())) for one in inputs]
    return f"{operator} ({', '.join(sizes)})" if sizes else operator


def _template(operator: str, choice: Any, ms: float, *, chosen: bool) -> pb.CompiledKernel:
    compile_id = compile_id_of(compiling_now())
    name, description = (str(getattr(choice, what, "") or "") for what in ("name", "description"))
    row = pb.CompiledKernel(
        key=pb.CompileKey(compile_id=compile_id), name=operator, chosen=chosen, time_us=1000 * ms
    )
    row.config = readable(f"{name}: {description}" if description else name)
    return row
