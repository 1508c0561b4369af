"""Mutates trace files and checks what the reader promises. `python -m benchmarks.reliability mutants` runs long.

For every mutant: a trace or a UserError, never another exception; the same result for every chunk size and stretch
length, and whether or not torch's layout is made use of; counts that add up; args that can be fetched; and none costs
more than `_PATIENCE_S` of this processor's time.
"""

import gzip
import json
import random
import tarfile
import tempfile
import time
from pathlib import Path

from kineto_helpers import as_json_alone, assert_same, read_in_stretches
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace

_PATIENCE_S = 20.0
_MAX_BYTES = 60_000
_TOKENS = [
    *(bytes([byte]) for byte in b'"\\{}[],:\0\xff\n'),
    *(b"}, {", b'}, {"ph": "X"', b"]}"),
    *(b'"}]', b"null", b"inf", b"-nan", b"N/A", b"1,5", b"0.-05", b"1e999", b"-1", b"99999999999999999999"),
    *(b'"ts": ', b'"dur": -1', b'"traceEvents": [', b"\\u12", b"\\ud800", b"\xc3", b'"name": "quo"te"'),
    *(b"\0" * 5000, b"[" * 3000, b'{"a":' * 2000),
]


def seeds() -> list[bytes]:
    """Documents to mutate: fronts of the committed recordings in three layouts, and small oddities."""
    documents = [b'{"traceEvents": []}', b"[]", b'[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1}]']
    for archive in sorted((Path(__file__).parent / "data").glob("*/*/*.tar.xz")):
        with tarfile.open(archive) as files:
            plain = [member for member in files if member.name.endswith(".pt.trace.json")]
            stream = files.extractfile(plain[0]) if plain else None
            text = stream.read() if stream else b""
        if not text:
            continue
        document = json.loads(text)
        events = document["traceEvents"]
        document["traceEvents"] = [*events[:20], *events[len(events) // 2 :][:20], *events[-20:]]
        cut = text.rfind(b"  },\n", 0, 30_000)
        documents += [text[: cut + 3] + b"\n  ],\n" + b'"traceName": "x"}', json.dumps(document).encode()]
        documents.append(
            b"{" + b",\n".join(json.dumps({k: v}).encode()[1:-1] for k, v in document.items()) + b"}"
        )
    return [seed[:_MAX_BYTES] if len(seed) > _MAX_BYTES else seed for seed in documents]


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to six random changes."""
    out = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        at = draw.randint(0, len(out))
        end = min(len(out), at + draw.choice([1, 3, 40, 700]))
        kind = draw.randint(0, 6)
        if kind == 0:
            out[at:at] = draw.choice(_TOKENS)
        elif kind == 1:
            out[at:end] = draw.choice(_TOKENS)
        elif kind == 2:
            del out[at:end]
        elif kind == 3:
            out[at:at] = out[end : end + draw.randint(0, 2000)]
        elif kind == 4 and at < len(out):
            out[at] ^= 1 << draw.randint(0, 7)
        elif kind == 5 and draw.random() < 0.2:
            del out[at:]
        elif kind == 6 and draw.random() < 0.1:
            out += out[: draw.randint(0, len(out))]
    return bytes(out)


def check(path: Path, data: bytes, draw: random.Random) -> str:
    """Read one mutant in several ways. Returns what it was: "trace" or "error"."""
    path.write_bytes(data)
    started = time.process_time()
    whole = _read(path, 128 << 10)
    for chunk in draw.sample([1, 100, 1000, 4096, 20_000], 2):
        _assert_like(whole, _read(path, chunk))
    with as_json_alone():
        _assert_like(whole, _read(path, 128 << 10))
    if isinstance(whole, Trace):
        _check_counts(whole)
        assert_same(
            whole,
            read_in_stretches(
                path, draw.choice([60, 900, 20_000]), draw.choice([100, 4096]), draw.randint(1, 3)
            ),
        )
        for row in draw.sample(range(len(whole)), min(len(whole), 5)):
            assert isinstance(whole.args(row), dict)
    packed = path.with_suffix(".gz")
    packed.write_bytes(_spoil(gzip.compress(data, 1), draw))
    _read(packed, 4096)
    assert time.process_time() - started < _PATIENCE_S, "too slow"
    return "trace" if isinstance(whole, Trace) else "error"


def _read(path: Path, chunk: int) -> Trace | str:
    try:
        return read_trace(str(path), chunk_bytes=chunk)
    except UserError as error:
        return str(error)


def _assert_like(one: Trace | str, other: Trace | str) -> None:
    if isinstance(one, Trace) and isinstance(other, Trace):
        assert_same(one, other)
    else:
        assert one == other


def _check_counts(trace: Trace) -> None:
    assert sum(trace.phases.values()) == trace.events
    assert len(trace) <= trace.phases.get("X", 0)
    assert (trace.self_ns >= 0).all()
    assert len(trace) == 0 or int(trace.event.max()) < trace.events


def _spoil(data: bytes, draw: random.Random) -> bytes:
    kind = draw.randint(0, 2)
    if kind == 0:
        return data[: draw.randint(2, len(data))]
    if kind == 1:
        spoilt = bytearray(data)
        spoilt[draw.randrange(2, len(data))] ^= 1 << draw.randint(0, 7)
        return bytes(spoilt)
    return data


def run(count: int, seed: int) -> dict[str, int]:
    """Check this many mutants. A failing one is kept and named."""
    originals = seeds()
    outcomes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            draw = random.Random(seed + number)
            data = mutate(draw.choice(originals), draw)
            try:
                outcome = check(Path(folder) / "t.json", data, draw)
            except Exception as error:
                kept = Path(tempfile.gettempdir()) / f"fuzz_kineto_{seed + number}.json"
                kept.write_bytes(data)
                raise AssertionError(f"seed {seed + number}, kept as {kept}: {error!r}") from error
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes
