"""The tab's HTTP routes under `data/plugin/torch_compile/`, described in docs/reference/routes.md.

All routes except `reading`, which stops reading a trace, are read-only. Parameters are ids from discovery, never paths:
they are looked up, not joined to a folder. `api.routes` computes the answers.

TensorBoard answers any `Host`. A page of another site could therefore point its own name to this machine (DNS
rebinding) and read a local logdir. An address cannot be rebound. A server that is bound to all addresses, or started
with a path prefix, is public on purpose or behind a proxy. Notebook servers, whose proxies keep the name that the
browser uses, say so in the environment. A header of a proxy is no sign of one: a page can send the same.
"""

import ipaddress
import os
import re
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tensorboard import plugin_util
from tensorboard.plugins import base_plugin
from tensorboard.util import tb_logging
from werkzeug import Request, Response

from tb_torchcompile_plugin.api.bodies import PANELS_PAGE, Body, Download, started, terms
from tb_torchcompile_plugin.api.export.export import Export
from tb_torchcompile_plugin.api.routes import ROUTES, Route, number, poll, span_ids, text, values
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import ForbiddenHost, displayable, quoted
from tb_torchcompile_plugin.plugin import responses

SETTING = "TB_TORCHCOMPILE_HOSTS"  # more names, separated by commas; `*` allows all
# TensorBoard's own for jupyter-server-proxy, JupyterHub's, and Colab's.
_PROXIES = ("TENSORBOARD_PROXY_URL", "JUPYTERHUB_SERVICE_PREFIX", "COLAB_RELEASE_TAG")
_PORT = re.compile(r"(?<!:):\d*$")  # not the end of an IPv6 address
_LOCALHOST = re.compile(r"([\w-]+\.)*localhost")
_WILDCARDS = ("0.0.0.0", "::")


def refuse_other_hosts(request: Request, flags: Namespace | None) -> None:
    """Raise ForbiddenHost if the request names a host that does not belong to this server.

    flags: TensorBoard's, of which `host`, `bind_all` and `path_prefix` are read.
    """
    host, bound = _name(request.headers.get("Host", "")), _name(getattr(flags, "host", None) or "")
    is_told = getattr(flags, "bind_all", False) or getattr(flags, "path_prefix", "") or bound in _WILDCARDS
    if not host or is_told or any(map(os.environ.get, _PROXIES)):
        return
    allowed = {bound, *map(_name, os.environ.get(SETTING, "").split(","))}
    is_local = _is_address(host) or _LOCALHOST.fullmatch(host) or host in own_names()
    if not is_local and not {host, "*"} & allowed:
        raise ForbiddenHost(
            f"{quoted(host)} is not a name of this server",
            next_step=f"Open it as localhost, start TensorBoard with --bind_all, or set {SETTING}={host[:200]}",
        )


def _name(host: str) -> str:
    """Return a host without its port, as names are compared."""
    return _PORT.sub("", host.strip()).lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@cache
def own_names() -> set[str]:
    """Return the names of this machine."""
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names | {name.partition(".")[0] for name in names}


if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = tb_logging.get_logger()

_EXPORT = (*span_ids("", ""), text("compare", ""), text("step", ""), number("code", 1))
_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")
_HEADING = re.compile(r"<h([23])>(.*?)</h\1>")
# TensorBoard does not serve other pages.
_LINK_TO_FILE = re.compile(r'<a href="(?!#|https?:)[^"]*">(.*?)</a>')
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Panels</title>
<link rel="icon" href="data:,">
<style>
  :root {{ color-scheme: light dark; }}
  body {{ max-width: 900px; margin: 0 auto; padding: 16px; font: 15px/1.5 system-ui, sans-serif; }}
  table {{ border-collapse: collapse; }}
  th, td {{ padding: 4px 12px 4px 0; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }}
  :target {{ text-decoration: underline; }}
</style>
<body>{}</body>
</html>
"""


class TorchCompilePlugin(base_plugin.TBPlugin):
    """The plugin, which consists of routes."""

    plugin_name = "torch_compile"

    def __init__(self, context: base_plugin.TBContext) -> None:
        folders = logdirs(context)
        self._logdir = ",".join(path for _, path in folders)
        self._session = Session(folders)
        self._flags = context.flags
        self._active, self._looking = False, threading.Lock()
        self.is_active()

    def is_active(self) -> bool:
        """Return whether the logdir had any run at the last check.

        One thread at a time checks again in the background: no request waits for a walk of the logdir.
        """
        if self._looking.acquire(blocking=False):
            threading.Thread(target=self._look, name="tb-torchcompile-activity", daemon=True).start()
        return self._active

    def _look(self) -> None:
        try:
            self._active = bool(self._session.runs().runs)
        except Exception as error:
            logger.error("Could not list the logdir: %s", displayable(f"{type(error).__name__}: {error}"))
        finally:
            self._looking.release()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the name of the tab and its module."""
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="TORCH COMPILE")

    def get_plugin_apps(self) -> "Mapping[str, WSGIApplication]":
        """Return all routes."""
        answers = {f"/{name}": self._route(partial(self._answer, route)) for name, route in ROUTES.items()}
        static = responses.route(responses.static)
        return {
            **answers,
            "/reading": self._route(self._stop_reading, ["DELETE"]),
            "/definitions": responses.route(
                lambda request: responses.respond(request, Body("text/html", page().encode()))
            ),
            "/terms": responses.route(lambda request: responses.answer(request, terms())),
            "/export": self._route(self._export),
            "/static/index.js": static,  # TensorBoard requires a route of its own for the entry module
            "/static/*": static,
        }

    def _route(
        self, handle: Callable[[Request], Response], methods: Sequence[str] = responses.READ
    ) -> "WSGIApplication":
        def answer(request: Request) -> Response:
            refuse_other_hosts(request, self._flags)
            responses.refuse_other_encodings(request)
            return handle(request)

        return responses.route(answer, methods)

    def _answer(self, route: Route[Any], request: Request) -> Response:
        """Answer 202 with the progress while the trace is being read: no request thread waits."""
        return responses.answer(request, poll(self._session, route, request.args))

    def _stop_reading(self, request: Request) -> Response:
        """Stop reading for a client that has left. Browsers ask before they let another site send DELETE."""
        responses.refuse_other_sites(request)
        sides = [side for side in ("", "2") if request.args.get(f"span{side}")]  # two of a comparison
        for side in sides or [""]:
            self._session.cancel(*values(span_ids(side), request.args))
        return responses.empty(204, "application/json")

    def _export(self, request: Request) -> Response:
        """Send a run as one file, which is written meanwhile."""
        run, worker, span, compare, step, code = values(_EXPORT, request.args)
        export = Export(self._session, run, worker, span, compare, step, bool(code), logdir=self._logdir)
        return responses.download(Download(f"{export.title}.html", started(export.blocks())))


def logdirs(context: base_plugin.TBContext) -> list[tuple[str, str]]:
    """Return (run prefix, path) pairs from `--logdir` or `--logdir_spec`; empty if neither was given.

    The prefix is "" for one folder without a name. Several folders without names are named by their last part:
    otherwise two runs would be called ".".
    """
    if plain := context.logdir or getattr(context.flags, "logdir", ""):
        return [("", _absolute(plain))]
    spec = getattr(context.flags, "logdir_spec", "") or ""
    named = [_name_and_path(part) for part in spec.split(",") if part]
    return named if len(named) == 1 else _with_unique_names(named)


def _name_and_path(part: str) -> tuple[str, str]:
    """Split `name:path` by TensorBoard's rules: absolute paths, URIs and drives have no name."""
    if ":" not in part or part.startswith("/") or _URI.match(part) or os.path.splitdrive(part)[0]:
        return "", _absolute(part)
    name, _, path = part.partition(":")
    return name, _absolute(path)


def _absolute(path: str) -> str:
    return path if _URI.match(path) else os.path.abspath(os.path.expanduser(path))


def _with_unique_names(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    paths: dict[str, str] = {}
    for name, path in named:
        prefix = base = name or os.path.basename(path) or path
        number = 2
        while prefix in paths:
            prefix, number = f"{base} ({number})", number + 1
        paths[prefix] = path
    return list(paths.items())


@cache
def page() -> str:
    """Return docs/reference/panels.md as HTML. Each heading has an id, such as `#your-code`."""
    html = plugin_util.markdown_to_safe_html(PANELS_PAGE.read_text(encoding="utf-8"))
    return _PAGE.format(_HEADING.sub(_with_id, _LINK_TO_FILE.sub(r"\1", html)))


def _with_id(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    return f'<h{level} id="{title.lower().replace(" ", "-")}">{title}</h{level}>'
