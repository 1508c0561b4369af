"""HTTP answers of the plugin: JSON, files of the static folder, and the one shape of errors.

{"error": {"code": "not_found", "message": "one line", "file": "", "next_step": ""}}
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from isal import igzip
from tensorboard.backend import http_util
from tensorboard.util import tb_logging
from werkzeug import Request, Response
from werkzeug.datastructures import Headers

from tb_torchcompile_plugin.api.bodies import Download, json_body, text_body
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.routes import Answer
from tb_torchcompile_plugin.errors import ApiErrorBody, BadRequest, NotFound, Notice, UserError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

logger = tb_logging.get_logger()

STATIC = Path(__file__).parents[1] / "static"

_MIME_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset(
    {
        *("text/plain", "text/css", "text/html", "text/javascript", "application/json", "image/svg+xml"),
        "application/octet-stream",
    }
)
_WORTH_COMPRESSING = 1024  # bytes; below, gzip saves less than a packet


READ = ("GET", "HEAD")


def route(respond: Callable[[Request], Response], methods: Sequence[str] = READ) -> WSGIApplication:
    """A WSGI application that answers these methods with `respond`, and every error in the one shape."""

    def answer(request: Request) -> Response:
        try:
            if request.method not in methods:
                return _method_not_allowed(request, methods)
            return respond(request)
        except UserError as error:
            return _error(request, error.status, error.code, error.notice)
        except Exception as error:
            logger.error("%s failed: %s", request.path, _one_line(error))
            return _internal(request)

    return Request.application(answer)


def answer(request: Request, value: Answer | Progress) -> Response:
    """`value` as what it is; 202 where it only tells how far something is."""
    if isinstance(value, Progress):
        return json(request, {"progress": value}, 202)
    if isinstance(value, str):
        return text(request, value)
    if isinstance(value, bytes):
        return binary(request, value)
    return download(value) if isinstance(value, Download) else json(request, value)


def json(request: Request, value: object, status: int = 200) -> Response:
    """`value` (a Struct, a dataclass or plain data) as JSON. NaN and infinities become null."""
    return _respond(request, json_body(value), "application/json", status)


def text(request: Request, value: str) -> Response:
    """`value` as plain text. The header keeps a browser from taking it for anything else."""
    return _respond(request, text_body(value), "text/plain", 200, [("X-Content-Type-Options", "nosniff")])


def html(request: Request, value: str) -> Response:
    """`value` as a page of its own."""
    return _respond(request, value.encode(), "text/html", 200)


def binary(request: Request, value: bytes) -> Response:
    """`value` as it is, compressed on the way."""
    headers = [("X-Content-Type-Options", "nosniff")]
    return _respond(request, value, "application/octet-stream", 200, headers)


def download(file: Download) -> Response:
    """A file that the browser saves under its name, sent as it is made and never held whole."""
    response = Response(file.blocks, mimetype="application/octet-stream", direct_passthrough=True)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    if file.size is not None:
        response.content_length = file.size
    return response


def static(request: Request, name: str) -> Response:
    """A file of the static folder. `name` is looked up in the folder's listing and never made into a path."""
    with os.scandir(STATIC) as entries:
        path = next((entry.path for entry in entries if entry.name == name and entry.is_file()), None)
    if path is None:
        raise NotFound("there is no such file", next_step="Reload the page: the plugin may have been updated")
    mime_type = _MIME_TYPES.get(Path(name).suffix, "application/octet-stream")
    return _respond(request, Path(path).read_bytes(), mime_type, 200)


def _error(
    request: Request, status: int, code: str, notice: Notice, headers: list[tuple[str, str]] | None = None
) -> Response:
    error = ApiErrorBody(code, notice.problem, notice.file, notice.next_step)
    return _respond(request, msgspec.json.encode({"error": error}), "application/json", status, headers)


def _method_not_allowed(request: Request, methods: Sequence[str]) -> Response:
    notice = Notice("", f"{request.method} is not allowed here", next_step=f"Use {methods[0]}")
    return _error(request, 405, "bad_request", notice, [("Allow", ", ".join(methods))])


def nothing() -> Response:
    """Done, and there is nothing to say about it."""
    return _bare(204, "application/json", [])


class _EmptyResponse(Response):
    """An answer without a body that says its type. TensorBoard warns in the terminal about any that does not, and
    werkzeug leaves it out of a 304."""

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> Headers:
        headers = super().get_wsgi_headers(environ)
        headers["Content-Type"] = self.content_type or ""
        return headers


def _bare(status: int, mime_type: str, headers: list[tuple[str, str]]) -> Response:
    return _EmptyResponse(
        status=status, mimetype=mime_type, headers=[*headers, ("X-Content-Type-Options", "nosniff")]
    )


def refuse_other_sites(request: Request) -> None:
    """Raise BadRequest when a browser says that a page of another site makes this request.

    What other than GET and HEAD is asked from there must be allowed beforehand, and is not; this is for browsers
    that were told not to care. Programs that are no browsers send no such header.
    """
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise BadRequest("this may not be asked from another site", next_step="Open TensorBoard itself")


def _internal(request: Request) -> Response:
    notice = Notice(
        "", "the plugin failed on the server", next_step="Report the line that TensorBoard logged about it"
    )
    return _error(request, 500, "internal", notice)


def _one_line(error: Exception) -> str:
    """Type, text and innermost place of an error: what a report needs, in one log line."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({place})"


def _respond(
    request: Request, body: bytes, mime_type: str, status: int, headers: list[tuple[str, str]] | None = None
) -> Response:
    headers = list(headers or [])
    if status == 200:
        headers += [("ETag", tag := _entity_tag(body)), ("Vary", "Accept-Encoding")]
        if request.if_none_match.contains_raw(tag):
            return _bare(304, mime_type, [*headers, ("Cache-Control", "no-cache, must-revalidate")])
    encoding = None
    if mime_type in _COMPRESSED and len(body) >= _WORTH_COMPRESSING:
        body, encoding = igzip.compress(body, compresslevel=2, mtime=0), "gzip"
    response: Response = http_util.Respond(
        request, body, mime_type, code=status, content_encoding=encoding, headers=headers
    )
    return response


def _entity_tag(body: bytes) -> str:
    """Browsers keep an answer under its tag, and ask each time whether it still holds."""
    return f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
