"""HTTP answers of the plugin: JSON, files of the static folder, and the one shape of errors.

{"error": {"code": "not_found", "message": "one line", "file": "", "next_step": ""}}
"""

import hashlib
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from isal import igzip
from tensorboard.backend import http_util
from tensorboard.util import tb_logging
from werkzeug import Request, Response
from werkzeug.datastructures import Headers

from tb_torchcompile_plugin.api.bodies import Body, Download, body_of, error_body
from tb_torchcompile_plugin.api.export.page import STATIC
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.errors import BadRequest, NotFound, Notice, UserError, displayable

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

logger = tb_logging.get_logger()

_MIME_TYPES = {".css": "text/css", ".js": "text/javascript"}  # of the tab's files
_MIN_COMPRESSED_BYTES = 1024  # gzip saves less than a packet (about 1,500 bytes) of a shorter answer
_NOSNIFF = ("X-Content-Type-Options", "nosniff")  # a browser takes the answer for nothing but its type
READ = ("GET", "HEAD")
Pairs: TypeAlias = Sequence[tuple[str, str]]


def route(handle: Callable[[Request], Response], methods: Sequence[str] = READ) -> "WSGIApplication":
    """Return a WSGI application that answers these methods with `handle`, and every error in the one shape."""

    def answer(request: Request) -> Response:
        try:
            if request.method not in methods:
                notice = Notice("", f"{request.method} is not allowed here", next_step=f"Use {methods[0]}")
                body = error_body("bad_request", notice, 405)
                return respond(request, body, [("Allow", ", ".join(methods))])
            return handle(request)
        except UserError as error:
            return respond(request, error_body(error.code, error.notice, error.status))
        except Exception as error:
            logger.error("%s failed: %s", displayable(request.path), _one_line(error))
            next_step = "Report the error that TensorBoard logged"
            notice = Notice("", "the plugin failed on the server", next_step=next_step)
            return respond(request, error_body("internal", notice, 500))

    return Request.application(answer)


def answer(request: Request, value: object) -> Response:
    """Send `value` by its type; a progress with status 202."""
    if isinstance(value, Progress):
        return respond(request, body_of({"progress": value})._replace(status=202))
    return download(value) if isinstance(value, Download) else respond(request, body_of(value))


def download(file: Download) -> Response:
    """Send a file that the browser saves under its name, block by block: it is never in memory as a whole."""
    response = Response(file.blocks, mimetype="application/octet-stream", direct_passthrough=True)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    response.headers.set(*_NOSNIFF)
    response.headers["Cache-Control"] = "no-store"
    if file.size is not None:
        response.content_length = file.size
    return response


def static(request: Request) -> Response:
    """Send a file of the static folder. Its name is looked up in the folder's listing, never joined to its path."""
    name = request.path.partition("/static/")[2]
    with os.scandir(STATIC) as entries:
        path = next((entry.path for entry in entries if entry.name == name and entry.is_file()), None)
    if path is None:
        raise NotFound("there is no such file", next_step="Reload the page: the plugin may have been updated")
    mime_type = _MIME_TYPES.get(Path(name).suffix, "application/octet-stream")
    return respond(request, Body(mime_type, Path(path).read_bytes()))


class _EmptyResponse(Response):
    """An answer without a body that has a content type, which werkzeug leaves out of a 304.

    TensorBoard warns in the terminal about any without.
    """

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        headers = super().get_wsgi_headers(environ)
        headers["Content-Type"] = self.content_type or ""
        return headers


def empty(status: int, mime_type: str, headers: Pairs = ()) -> Response:
    """Send an answer without a body."""
    return _EmptyResponse(status=status, mimetype=mime_type, headers=[*headers, _NOSNIFF])


def refuse_other_sites(request: Request) -> None:
    """Raise BadRequest if a page of another site makes this request, by the browser's own header.

    Browsers ask before they send other methods than GET and HEAD from there; this is for browsers that are set up not
    to. Other programs send no such header.
    """
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise BadRequest("requests from other sites are not allowed", next_step="Open TensorBoard itself")


def refuse_other_encodings(request: Request) -> None:
    """Raise BadRequest if the query has bytes that are not UTF-8, which werkzeug does not expect."""
    try:
        request.query_string.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the query is not UTF-8", next_step="Percent-encode its parameters") from error


def _one_line(error: Exception) -> str:
    """Return type, text and innermost line of an error: what a report needs, in one line of the log."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{frame.f_code.co_filename}:{line}"
    return displayable(f"{type(error).__name__}: {' '.join(str(error).split())} ({place})")


def respond(request: Request, body: Body, headers: Pairs = ()) -> Response:
    """Send an answer, a long one compressed."""
    (mime_type, data, status), headers = body, [*headers]
    if status == 200:
        # Browsers keep an answer under its tag, and ask each time whether it is still valid.
        tag = f'W/"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
        headers += [("ETag", tag), ("Vary", "Accept-Encoding")]
        if request.if_none_match.contains_raw(tag):
            return empty(304, mime_type, [*headers, ("Cache-Control", "no-cache, must-revalidate")])
    encoding = None
    if len(data) >= _MIN_COMPRESSED_BYTES:
        data, encoding = igzip.compress(data, compresslevel=2, mtime=0), "gzip"
    response: Response = http_util.Respond(
        request, data, mime_type, code=status, content_encoding=encoding, headers=headers
    )
    return response
