"""What is mutated, and what is asked of each mutant. A check returns "read" or "refused"; anything else is broken."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import benchmarks  # noqa: F401  # knows where the tests' helpers are
from compile_records import NUMBERS, ODD, OTHERS, TEXTS, places, put_anywhere, with_value
from fuzz_kineto import check as check_reader
from fuzz_kineto import mutate, seeds
from many_ranks import PLANTED, course, digest_of
from profiles import IDENTITIES, SPAN, SPAN_QUESTIONS, WORKER_QUESTIONS, ask, data_of
from tb_torchcompile_plugin.analysis.compile.cache_keys import Start, Starts
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation, guard_checks
from tb_torchcompile_plugin.analysis.compile.startup import startup
from tb_torchcompile_plugin.analysis.runtime.kernels import code_kernels
from tb_torchcompile_plugin.compile_log.summary import load as load_summary
from tb_torchcompile_plugin.compile_log.summary import unpack_rows
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import load as load_digest
from tb_torchcompile_plugin.job.job import DigestFile, job_of_digests
from tb_torchcompile_plugin.logdir.discovery import digest_name
from tb_torchcompile_plugin.logdir.filesystem import local_file
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload, without_impossible
from tb_torchcompile_plugin.reader.torch_trace.structured_log import log_identity, read_log
from tb_torchcompile_plugin.reader.trace.kineto import read_trace

Check = Callable[[Path, random.Random], str]
DATA = Path(__file__).parents[2] / "tests" / "data"
_ODD = (*NUMBERS, *TEXTS, *OTHERS)
_SECTIONS = ("calls", "steps", "host", "kernels", "compiled")
LOG_BYTES = 60_000
_EXACT_NS = 1 << 50  # up to here µs in a float tell each ns


def traces() -> Check:
    """Bytes of traces, plain and packed; each tenth is read in several ways that must agree."""
    originals = seeds()

    def check(folder: Path, draw: random.Random) -> str:
        data = mutate(draw.choice(originals), draw)
        if draw.random() < 0.1:
            return "read" if check_reader(folder / "t.json", data, draw) == "trace" else "refused"
        path = folder / "t.json"
        path.write_bytes(mutate(gzip.compress(data, 1), draw) if draw.random() < 0.2 else data)
        try:
            trace = read_trace(str(path), workers=1)
        except UserError:
            return "refused"
        for row in draw.sample(range(len(trace)), min(len(trace), 3)):
            msgspec.json.encode(str(trace.args(row)))
        return "read"

    return check


def events() -> Check:
    """Values of traces: every question about a span has an answer, and the identities hold."""
    originals = [*documents()]

    def check(folder: Path, draw: random.Random) -> str:
        path = folder / "w.1.pt.trace.json"
        path.write_text(json.dumps(changed_events(draw.choice(originals), draw)))
        try:
            profile = Profile(read_trace(str(path), workers=1), None, SPAN)
        except UserError:
            return "refused"
        for name in SPAN_QUESTIONS:
            msgspec.json.encode(ask(profile, name))
        begin, end = profile.trace.extent()
        if end - begin < _EXACT_NS:
            for holds in IDENTITIES:
                holds(profile)
        return "read"

    return check


def documents() -> Iterator[dict[str, Any]]:
    """Yield traces whose values can be changed."""
    for seed in seeds():
        try:
            document = json.loads(seed)
        except ValueError:
            continue
        if isinstance(document, dict) and document.get("traceEvents") and b'{"schemaVersion"' in seed[:30]:
            yield document


def changed_events(document: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Change one to six values, durations and times, or repeat an event."""
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        rows = document["traceEvents"]
        kind = draw.randint(0, 5)
        if kind <= 2:
            document = with_value(document, draw.choice([*places(document)]), draw.choice(_ODD))
        elif isinstance(rows, list) and rows:
            index, other = draw.randrange(len(rows)), draw.choice(rows)
            event = dict(rows[index]) if isinstance(rows[index], dict) else {}
            if kind == 3:
                event = {**event, draw.choice(["ts", "dur"]): draw.choice([0, 1, 1e3, 1e9, -5, 0.0005, 1e15])}
            elif kind == 4 and isinstance(other, dict):
                event |= {key: other[key] for key in draw.sample(sorted(other), min(2, len(other)))}
            document = {**document, "traceEvents": [*rows[:index], event, *rows[index + (kind != 5) :]]}
        if not isinstance(document, dict) or "traceEvents" not in document:
            return {"traceEvents": document}
    return document


@cache
def packed_files(pattern: str, largest: int) -> list[bytes]:
    """Return files of the recordings by the end of their name."""
    contents: list[bytes] = []
    for archive in sorted(DATA.glob("*/*/*.tar.xz")):
        with tarfile.open(archive) as files:
            fitting = (member for member in files if member.name.endswith(pattern) and member.size <= largest)
            contents += [file.read() for member in fitting if (file := files.extractfile(member))]
    return contents[:40]


def unpacked(folder: Path, name: str) -> Path:
    """Unpack a recording into a folder of its name."""
    with tarfile.open(DATA / "2.11.0" / name / f"{name}.tar.xz") as files:
        files.extractall(folder / name, filter="data")
    return folder / name


def emptied(folder: Path) -> Path:
    """Remove all files in it."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()
    return folder


def logs() -> Check:
    """Change bytes of logs, plain and packed, and values of their envelopes."""
    originals = [text[: text.rfind(b"\nV", 0, LOG_BYTES)] for text in packed_files(".log", 5 << 20)]

    def check(folder: Path, draw: random.Random) -> str:
        data = changed_log(draw.choice(originals), draw)
        path = folder / draw.choice(
            ["dedicated_log_torch_trace_rank_3_a.log", "dedicated_log_torch_trace_a.log"]
        )
        path.write_bytes(mutate(gzip.compress(data, 1), draw) if draw.random() < 0.1 else data)
        log_identity(str(path))
        try:
            summary = without_impossible(read_log(str(path)))
        except UserError:
            return "refused"
        data_read = CompileData(summary, "torch_trace", str(path), [], local_file(str(path)))
        ask_worker(data_read, draw)
        return "read"

    return check


def changed_log(data: bytes, draw: random.Random) -> bytes:
    """Bytes anywhere, or a value of an envelope or payload."""
    if draw.random() < 0.5:
        return mutate(data, draw)
    lines = data.split(b"\n")
    for _ in range(draw.choice([1, 2, 4])):
        at = draw.randrange(len(lines))
        begin = lines[at].find(b"{")
        with suppress(ValueError):
            lines[at] = lines[at][:begin] + changed_json(lines[at][begin:] if begin >= 0 else b"", draw)
    return b"\n".join(lines)


def changed_json(text: bytes, draw: random.Random) -> bytes:
    """Change a value anywhere in it. Raises ValueError if the text is not JSON."""
    value = json.loads(text)
    return json.dumps(with_value(value, draw.choice([*places(value)]), draw.choice(_ODD))).encode()


def ask_worker(data: CompileData, draw: random.Random) -> None:
    """Ask every question about what a worker compiled, and about some of its rows and texts."""
    for question in WORKER_QUESTIONS.values():
        msgspec.json.encode(data.of(question))
    msgspec.json.encode(startup(Starts(Start("a", "w", None, data), (Start("a", "v", 1, data),))))
    for row in draw.sample([*data.summary.compilations], min(2, len(data.summary.compilations))):
        for about in (compilation, guard_checks):
            _refusable(lambda about=about, row=row: about(data, row.key.epoch, row.key.compile_id))
    for number in draw.sample(range(len(data.summary.artifacts)), min(2, len(data.summary.artifacts))):
        for text in (read_payload, code_kernels):
            _refusable(lambda text=text, number=number: text(data, number))


def _refusable(answer: Callable[[], Any]) -> None:
    with suppress(UserError):
        msgspec.json.encode(answer())


def summaries() -> Check:
    """Bytes of summaries as they lie there, and inside of what is packed in them."""
    originals = [data for data in packed_files(".pt.compile.pb", 60_000) if len(data) > 1000]

    def check(folder: Path, draw: random.Random) -> str:
        path = folder / "w.1.pt.compile.pb"
        path.write_bytes(changed_summary(draw.choice(originals), draw))
        try:
            data = data_of(without_impossible(load_summary(str(path))))
        except UserError:
            return "refused"
        ask_worker(data, draw)
        return "read"

    return check


def changed_summary(data: bytes, draw: random.Random) -> bytes:
    """Bytes of the file, or of the rows that are packed in it, or values of any fields."""
    if draw.random() < 0.3:
        return mutate(data, draw)
    summary = CompileSummary.FromString(data)
    if draw.random() < 0.6:
        unpack_rows(summary)
        for _ in range(draw.choice([1, 1, 2, 5])):
            put_anywhere(summary, draw.randrange(1 << 32), draw.randrange(1 << 32), draw.choice(ODD))
        return bytes(summary.SerializeToString())
    if not summary.rows:  # they are packed where there are texts
        return mutate(data, draw)
    summary.rows = zlib.compress(mutate(zlib.decompress(summary.rows), draw), 1)
    whole: bytes = summary.SerializeToString()
    return whole


def digests() -> Check:
    """Change bytes of a digest, in the file and inside its sections: the job has two sound ones, too."""

    def check(folder: Path, draw: random.Random) -> str:
        paths = written_digests(folder, draw)
        files = [
            DigestFile(f"rank{rank}", "1", file)
            for rank, path in enumerate(paths)
            if (file := local_file(str(path)))
        ]
        _refusable_load(files[1])
        job = job_of_digests(files)
        if job is None:
            return "refused"
        for question in _job_questions():
            _refusable(lambda question=question: job.of(question))
        return "refused" if job.unread else "read"

    return check


def written_digests(folder: Path, draw: random.Random | None = None) -> list[Path]:
    """Write the digests of three ranks, one of them changed."""
    folder.mkdir(exist_ok=True)
    paths = [folder / digest_name(f"rank{rank}", "1") for rank in range(3)]
    for rank, (path, digest) in enumerate(zip(paths, _sound_digests())):
        path.write_bytes(changed_digest(digest, draw) if draw and rank == 1 else digest.SerializeToString())
    return paths


@cache
def _sound_digests() -> list[pb.Digest]:
    ran = course(4, PLANTED)
    digests = [digest_of(rank, 4, ran, PLANTED) for rank in range(3)]
    for digest in digests:
        digest.format_version = 1
    return digests


def _refusable_load(file: DigestFile) -> None:
    with suppress(UserError):
        load_digest(file.file)


@cache
def _job_questions() -> list[Callable[..., Any]]:
    from tb_torchcompile_plugin.api import routes

    return [row.ask for row in routes.ROUTES.values() if row.subject is routes.JOB and not row.parameters]


def changed_digest(digest: pb.Digest, draw: random.Random) -> bytes:
    """Change bytes of the file, or of what is packed in one of its sections."""
    data: bytes = digest.SerializeToString()
    if draw.random() < 0.3:
        return mutate(data, draw)
    other = pb.Digest.FromString(data)
    if draw.random() < 0.2:
        put_anywhere(other, draw.randrange(1 << 32), draw.randrange(1 << 32), draw.choice(ODD))
        return bytes(other.SerializeToString())
    section = draw.choice([name for name in _SECTIONS if getattr(other, name)])
    setattr(other, section, zlib.compress(mutate(zlib.decompress(getattr(other, section)), draw), 1))
    whole: bytes = other.SerializeToString()
    return whole
