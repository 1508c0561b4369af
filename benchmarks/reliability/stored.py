"""Mutants of small files: texts of TORCH_LOGS, baselines of the gate, status files, and what the cache keeps.

A check returns "read" or "refused"; anything else is broken.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import re
import tempfile
import time
import zlib
from dataclasses import asdict
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import fsspec

from benchmarks.reliability.kinds import (
    DATA,
    Check,
    ask_worker,
    changed_json,
    emptied,
    mutate,
    packed_files,
    unpacked,
)
from kineto_helpers import assert_same
from profiles import SPAN
from tb_torchcompile_plugin.analysis.compare.baseline import load as load_baseline
from tb_torchcompile_plugin.analysis.compare.baseline import save as save_baseline
from tb_torchcompile_plugin.analysis.compare.gate import gate, read_settings
from tb_torchcompile_plugin.analysis.runtime.kernels import Kernels, kernel_table
from tb_torchcompile_plugin.api.bodies import body_of
from tb_torchcompile_plugin.api.session import open_logdir
from tb_torchcompile_plugin.cli.compare import junit, markdown, recorded_runs
from tb_torchcompile_plugin.cli.watch import watch
from tb_torchcompile_plugin.errors import UserError, visible
from tb_torchcompile_plugin.logdir.compile_status import CompileStatus, host_name
from tb_torchcompile_plugin.logdir.discovery import status_name
from tb_torchcompile_plugin.logdir.filesystem import local_file, remote_file
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import answers, copies, store
from tb_torchcompile_plugin.reader.cache import cache as cache_folder
from tb_torchcompile_plugin.reader.compile_data import read_compile_data
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace

_LOG_NAMES = ("train.log", "train.txt", "slurm-7.out", "stderr.err")
_CONDITIONS = ("step>3%", "compile>20%", "kernel:triton_*>10%", "memory>1%", "breaks>0", "recompiles>0")
_STREAM = re.compile(rb"(?s)([^\n]*\n)(.*)")  # the head of a baseline, and what is packed behind it
_CACHED_BYTES = 150_000  # of a trace
_URL = "memory://mutants/w.1.pt.trace.json"


def log_texts() -> Check:
    """Bytes and lines of TORCH_LOGS texts of ten launchers, plain and packed, as files of a logdir."""
    files = [path.read_bytes() for path in sorted((DATA / "torch_logs").glob("*.log*"))]
    texts = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in files]

    def check(folder: Path, draw: random.Random) -> str:
        data = _changed_text(draw.choice(texts), draw.choice(texts), draw)
        name = draw.choice(_LOG_NAMES)
        if draw.random() < 0.1:
            name, data = f"{name}.gz", mutate(gzip.compress(data, 1), draw)
        (emptied(folder) / name).write_bytes(data)
        read = [
            compiled
            for _, workers in open_logdir(str(folder)).catalog.look().runs
            for worker in workers[:3]
            if (compiled := read_compile_data(worker)[0])
        ]
        for compiled in read:
            ask_worker(compiled, draw)
        return "read" if read else "refused"

    return check


def _changed_text(text: bytes, other: bytes, draw: random.Random) -> bytes:
    """Change bytes, or lose, repeat and move lines, also those of another process."""
    if draw.random() < 0.5:
        return mutate(text, draw)
    lines, others = text.split(b"\n"), other.split(b"\n")
    for _ in range(draw.choice([1, 3, 10])):
        at, many = draw.randrange(len(lines)), draw.choice([1, 5, 50])
        kind = draw.randint(0, 2)
        if kind == 0 and len(lines) > many:
            del lines[at : at + many]
        else:
            source = lines if kind == 1 else others
            begin = draw.randrange(len(source))
            lines[at:at] = source[begin : begin + many]
    return b"\n".join(lines)


def baselines() -> Check:
    """Bytes of baselines, in the file and inside of what is packed, and values: as either side of a gate."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [recorded_runs(str(unpacked(Path(folder), name)))[0] for name in ("breaks", "resnet18_eager")]
        save_baseline(runs[:1], f"{folder}/one.tbtc", "0")
        save_baseline(runs, f"{folder}/two.tbtc", "0")
        originals = [path.read_bytes() for path in sorted(Path(folder).glob("*.tbtc"))]
    settings = read_settings(_CONDITIONS, (), "")

    def check(folder: Path, draw: random.Random) -> str:
        path = folder / "base.tbtc"
        path.write_bytes(_changed_baseline(draw.choice(originals), draw))
        try:
            loaded = load_baseline(str(path))
        except UserError:
            return "refused"
        for report in (gate(loaded, runs[0], settings), gate(runs[:1], loaded[0], settings)):
            ElementTree.fromstring(junit(report))
            assert visible(page := markdown(report, [str(path), "runs"])) == page, "a character to hide"
            body_of(report)
        return "read"

    return check


def _changed_baseline(data: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return mutate(data, draw)
    match = _STREAM.fullmatch(data)
    assert match
    head, text = match[1], zlib.decompress(match[2])
    return head + zlib.compress(mutate(text, draw) if draw.random() < 0.3 else changed_json(text, draw), 1)


def status_files() -> Check:
    """Bytes and values of the status file of a process that compiles: in the listing, and in `watch`."""

    def check(folder: Path, draw: random.Random) -> str:
        data = _status(draw)
        data = mutate(data, draw) if draw.random() < 0.3 else changed_json(data, draw)
        (emptied(folder) / status_name("w", os.getpid())).write_bytes(data)
        runs, printed = open_logdir(str(folder)).runs(), io.StringIO()
        with contextlib.redirect_stdout(printed):
            watch(str(folder), once=True)
        assert visible(printed.getvalue()) == printed.getvalue(), "a character to hide"
        assert bool(runs.runs) == ("Nothing is compiling" not in printed.getvalue())
        body_of(runs)
        return "read" if runs.runs else "refused"

    return check


def _status(draw: random.Random) -> bytes:
    now = host_name(), os.getpid(), draw.choice([None, 3]), time.time(), 41.2
    status = CompileStatus(*now, 7, "0/1", "forward (a.py:8)", "forward", "autotune", 2, 12, 40, "aten.mm")
    return json.dumps(asdict(status)).encode()


def cache_files() -> Check:
    """Damaged entries of the cache: parsed traces and answers are as before or made again, copies read or refused."""
    traces = [data for data in packed_files(".pt.trace.json", _CACHED_BYTES) if b"ProfilerStep" in data][:3]

    def check(folder: Path, draw: random.Random) -> str:
        store.WORTH_STORING, store._log.disabled = 0, True  # it logs each damage
        number = draw.randrange(len(traces))
        path = folder / f"{number}.json"
        if not path.exists():
            path.write_bytes(traces[number])
        return draw.choice([_parsed, _parsed, _answer, _copy])(path, draw)

    return check


def _parsed(path: Path, draw: random.Random) -> str:
    store.open_trace(str(path), workers=1)
    key = store._key(str(path))
    assert key
    entry = cache_folder.cache_directory() / key
    changed = _damage(entry / draw.choice(["columns", "contents"]), draw)
    as_before = store._load(entry, str(path)) is not None
    assert not (as_before and changed), "damage was not noticed"
    assert_same(store.open_trace(str(path), workers=1), _sound(str(path)))
    assert store._load(entry, str(path)) is not None, "the entry was not made again"
    return "read" if as_before else "refused"


@cache
def _sound(path: str) -> Trace:
    return read_trace(path, workers=1)


@cache
def _kernels(path: str) -> Kernels:
    return Profile(_sound(path), None, SPAN).of(kernel_table)


def _answer(path: Path, draw: random.Random) -> str:
    file = local_file(str(path))
    assert file
    source, answer = answers.AnswerSource((file,)), _kernels(str(path))
    assert answers.save("kernels", answer, source)
    _damage(answers._path_and_key("kernels", source)[0], draw)
    found = answers.load("kernels", Kernels, source)
    assert found in (None, answer), "another answer than was computed"
    return "read" if found else "refused"


def _copy(path: Path, draw: random.Random) -> str:
    """Damage the copy of a remote trace. One of another size is fetched again."""
    with fsspec.open(_URL, "wb") as remote:
        remote.write(path.read_bytes())
    file = remote_file(_URL)
    assert file
    copied = copies._entry(file, None, None) / file.name
    _damage(copied, draw)
    has_its_size = copied.is_file() and copied.stat().st_size == file.size
    trace: Trace | None
    try:
        trace, named = copies.read(file, None, None), _URL
    except UserError as error:
        trace, named = None, error.notice.file
    cache_folder.remove(copied.parent)
    assert named == _URL, f"the message is about {named}"
    assert has_its_size or (trace and len(trace) == len(_sound(str(path)))), "it was not fetched again"
    return "read" if trace else "refused"


def _damage(path: Path, draw: random.Random) -> bool:
    """Change, cut off, empty or remove a file, by a new one in its place; return whether its bytes are others."""
    data = path.read_bytes()
    kind = draw.randint(0, 9)
    path.unlink()
    if kind == 0:
        return True
    bits = bytearray(data)
    bits[draw.randrange(len(bits))] ^= 1 << draw.randrange(8)
    new = mutate(data, draw) if kind > 5 else data[: draw.randrange(len(data))] if kind == 1 else bytes(bits)
    path.write_bytes(new)
    return new != data
