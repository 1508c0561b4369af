"""Requests to every route, through TensorBoard's own application: valid ones about mutants, and mutants of requests.

A check returns "read" or "refused"; anything else is broken.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tensorboard.backend.application import TensorBoardWSGI
from werkzeug.test import create_environ, run_wsgi_app

from benchmarks.reliability.kinds import (
    DATA,
    LOG_BYTES,
    Check,
    changed_events,
    changed_log,
    changed_summary,
    documents,
    emptied,
    mutate,
    packed_files,
    seeds,
    unpacked,
    written_digests,
)
from served import ROOT, make_plugin
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.reader.cache.cache import cache_directory

_TIMEOUT_S = 50.0
_STATUSES = (200, 304, 400, 403, 404, 405, 422)
_WITHOUT_ID = {"to": "100000000", "width": "300", "lanes": "0,1", "q": "a", "rank": "1"}  # "0" for others
_OTHERS = ("reading", "definitions", "terms", "export", "static/index.js", "static/../plugin.py", "nothing")
_METHODS = ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "", "\0")
# Odd values, separated by spaces.
_HOSTS = """localhost:6006 127.0.0.1 [::1]:6006 evil.example evil.example:80 localhost.evil.example [ [::1 ::1
    localhost:port 127.0.0.1@evil.example * 0 évil \x1b[2J"""
_ESCAPES = "% %4 %GG %FF%00 %00 %C0%AE %u202e %ED%A0%80 %1B[2J %E2%80%AE %0D%0A ; & = + \xff"
_VALUES = r"""0 -1 00 1e9 999999999 9999999999999999999999 NaN null ٣ 1,2 , 1,,2 1/0 ../../../../etc/passwd
    /etc/passwd .. . ~ file:///etc/passwd http://127.0.0.1:1/ <script>alert(1)</script> '" %s%n {} (a+)+$ [ \ * nccl"""
_TEXTS = ("", "\0", "0\n1", "\u202e", "\u2028", "\xff", "\ud800", "\x1b[31m", "a" * 100_000, *_VALUES.split())
_HEADERS = {
    "HTTP_IF_NONE_MATCH": ("*", 'W/"x"', '"' * 99, "\xff", ","),
    "HTTP_ACCEPT_ENCODING": ("gzip", "identity;q=0", "gzip;q=x", "*", "\xff"),
    "HTTP_RANGE": ("bytes=0-", "bytes=9-1", "x=\xff", "bytes=" + "0-1," * 999),
    "HTTP_SEC_FETCH_SITE": ("cross-site", "same-origin", "\xff"),
    "CONTENT_LENGTH": ("9", "-1", "x", "9" * 30),
    "CONTENT_TYPE": ("application/json", "multipart/form-data", "\xff"),
}


def routes() -> Check:
    """Request every route of a logdir of mutants."""
    trace_bytes, originals = seeds(), [*documents()]
    logs_of = [text[: text.rfind(b"\nV", 0, LOG_BYTES)] for text in packed_files(".log", 5 << 20)]
    summaries_of = [data for data in packed_files(".pt.compile.pb", 60_000) if len(data) > 1000]

    def check(folder: Path, draw: random.Random) -> str:
        emptied(folder)
        text = json.dumps(changed_events(draw.choice(originals), draw)).encode()
        (folder / "w.1.pt.trace.json").write_bytes(
            text if draw.random() < 0.7 else mutate(draw.choice(trace_bytes), draw)
        )
        (folder / "w.1.pt.compile.pb").write_bytes(changed_summary(draw.choice(summaries_of), draw))
        (folder / "dedicated_log_torch_trace_a.log").write_bytes(changed_log(draw.choice(logs_of), draw))
        written_digests(folder / "job", draw)
        server = _Server(folder)
        statuses = {
            server.ask(create_environ(f"{ROOT}/{name}", query_string=dict(_parameters(name, ids))))
            for ids in server.ids(draw)
            for name in ROUTES
        }
        server.plugin._session.close()
        return "read" if 200 in statuses else "refused"

    return check


def requests() -> Check:
    """Change ids, parameters, escapes, path, method, host or headers of a request about sound runs."""

    def check(folder: Path, draw: random.Random) -> str:
        server = _sound(folder)
        status = server.ask(_changed_request(draw.choice(server.ids(draw)), draw))
        return "read" if status < 400 else "refused"

    return check


@cache  # one for the mutants of a process
def _sound(folder: Path) -> _Server:
    for name in ("breaks", "resnet18_eager", "handler_breaks"):
        unpacked(folder, name)
    (folder / "train.log").write_bytes((DATA / "torch_logs" / "kubectl.log").read_bytes())
    written_digests(folder / "job")
    return _Server(folder)


class _Server(logging.Handler):
    """The application on a logdir, and what its threads raise, or log as an error or with a traceback."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.plugin, self._problems = make_plugin(folder), list[str]()
        self._application = TensorBoardWSGI([self.plugin])
        threading.excepthook = lambda raised: self._problems.append(f"a thread raised {raised.exc_value!r}")
        logging.getLogger().handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self._problems.append(f"logged: {record.getMessage()}")

    def ids(self, draw: random.Random) -> list[dict[str, str]]:
        """Return valid ids of each run, of any of its workers and spans."""
        blocks, *_ = run_wsgi_app(self._application, create_environ(f"{ROOT}/runs"), buffered=True)
        found = []
        for run in json.loads(b"".join(blocks))["runs"]:
            worker = draw.choice(run["workers"])
            span = draw.choice(worker["spans"])["span"] if worker["spans"] else "1"  # of the digests
            found.append({"run": run["run"], "worker": worker["worker"], "span": span})
        return found

    def ask(self, environ: dict[str, Any]) -> int:
        """Return the status in the end. Raises AssertionError for an answer that must not be."""
        self._problems.clear()
        deadline = time.monotonic() + _TIMEOUT_S
        request = ascii({name: str(environ[name])[:150] for name in environ if name.isupper()})
        while (answer := run_wsgi_app(self._application, dict(environ), buffered=True))[1][:3] == "202":
            assert time.monotonic() < deadline, f"still not there: {request}"
            time.sleep(0.01)
        blocks, status, headers = answer
        allowed = {*_STATUSES, 204} if environ["REQUEST_METHOD"] == "DELETE" else _STATUSES
        assert int(status[:3]) in allowed and not self._problems, f"{status}, {self._problems[:1]}: {request}"
        why = _why_wrong(b"".join(blocks), headers)
        assert not why, f"{why}: {request}"
        return int(status[:3])


def _why_wrong(data: bytes, headers: Any) -> str:
    if headers.get("Content-Encoding") == "gzip" and data:
        data = gzip.decompress(data)
    if any(str(path).encode() in data for path in (DATA.parents[1], cache_directory())):
        return "a path of this machine"
    if headers.get("Content-Type", "").startswith("application/json") and data:
        text = data.decode("utf-8")
        json.loads(text, parse_constant=_reject)
        return "" if visible(text) == text else "a hidden character"
    return ""


def _reject(constant: str) -> None:
    raise AssertionError(f"{constant} in an answer")


def _parameters(name: str, ids: dict[str, str]) -> list[tuple[str, str]]:
    """Return valid parameters of a route about these ids."""
    valid = {**_WITHOUT_ID, **ids, **{f"{key}2": value for key, value in ids.items()}}
    route = ROUTES.get(name)
    rows = (*route.subject.ids, *route.parameters) if route else ()
    return [(key, valid.get(key, "0")) for row in rows for key in row.names] or [*ids.items()]


def _changed_request(ids: dict[str, str], draw: random.Random) -> dict[str, Any]:
    name = draw.choice([*ROUTES] if draw.random() < 0.95 else _OTHERS)
    environ, given = create_environ(f"{ROOT}/{name}"), _parameters(name, ids)
    kind = draw.randint(0, 9)
    for _ in range(draw.choice([1, 1, 3]) if kind > 5 else 0):
        at = max(draw.randrange(len(given)), draw.randrange(len(given)))  # rather not an id: they are first
        key, value = given[at]
        changed = (key, draw.choice(_TEXTS)), (key, value + draw.choice(_TEXTS)), (draw.choice(_TEXTS), value)
        given[at : at + draw.choice([0, 1, 1])] = [draw.choice(changed)]
    query = urlencode(given, errors="surrogatepass")
    if kind == 0:
        environ["REQUEST_METHOD"] = draw.choice(_METHODS)
    elif kind == 1:
        environ["HTTP_HOST"] = draw.choice(["", "a" * 5000, *_HOSTS.split()]).encode().decode("latin-1")
    elif kind == 2:
        header = draw.choice([*_HEADERS])
        environ[header] = draw.choice(_HEADERS[header])
    elif kind == 3:
        environ["PATH_INFO"] = f"{ROOT}/{mutate(name.encode(), draw).decode('latin-1')}"
    elif kind == 4:
        query = mutate(query.encode(), draw).decode("latin-1")
    elif kind == 5:
        at = draw.randint(0, len(query))
        query = query[:at] + draw.choice(_ESCAPES.split()) + query[at:]
    environ["QUERY_STRING"] = query
    return environ
