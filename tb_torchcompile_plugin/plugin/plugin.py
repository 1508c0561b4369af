"""The tab's HTTP routes under `data/plugin/torch_compile/`, described in docs/http.md.

All but one are read-only; `reading` stops the reading of a trace. Parameters are ids that discovery made, never
paths: what is asked for is looked up, nothing is joined to a folder. `api.routes` answers; this module only carries.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tensorboard import plugin_util
from tensorboard.plugins import base_plugin
from tensorboard.util import tb_logging
from werkzeug import Request, Response

from tb_torchcompile_plugin.api.bodies import SOURCE, Download, anchor, started, terms
from tb_torchcompile_plugin.api.export.export import Chosen, Export
from tb_torchcompile_plugin.api.parameters import side_ids, span_ids, values
from tb_torchcompile_plugin.api.routes import ROUTES, Route, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.plugin import responses

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


# docs/definitions.md as a page: what every number of the tab means, without any other site.


_HEADING = re.compile(r"<h([23])>(.*?)</h\1>")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>What the numbers mean</title>
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


@cache
def page() -> str:
    """HTML. Each heading has its name as its id, as panels and routes write theirs: `#gpu_utilization`."""
    html = plugin_util.markdown_to_safe_html(SOURCE.read_text(encoding="utf-8"))
    return _PAGE.format(_HEADING.sub(_with_id, html))


def _with_id(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    return f'<h{level} id="{anchor(title)}">{title}</h{level}>'


# Which folders TensorBoard was told to show.


_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")


def logdirs(context: base_plugin.TBContext) -> list[tuple[str, str]]:
    """(run prefix, path) pairs from `--logdir` or `--logdir_spec`; empty when neither was given.

    The prefix is "" where one folder was given without a name. Several folders without names are known by
    their last part, since two runs called "." could not be told apart.
    """
    plain = context.logdir or getattr(context.flags, "logdir", "") or ""
    spec = getattr(context.flags, "logdir_spec", "") or ""
    if plain and not _is_list(plain):
        return [("", _absolute(plain))]
    named = [_name_and_path(part) for part in (plain or spec).split(",") if part]
    if len(named) == 1:
        return named
    return _told_apart(named)


def _is_list(logdir: str) -> bool:
    """`--logdir a,b` once meant two folders; a folder whose name holds a comma still means itself."""
    return "," in logdir and not os.path.exists(_absolute(logdir))


def _name_and_path(part: str) -> tuple[str, str]:
    """`name:path`, by TensorBoard's own rules: absolute paths, URIs and drives have no name."""
    if ":" not in part or part.startswith("/") or _URI.match(part) or os.path.splitdrive(part)[0]:
        return "", _absolute(part)
    name, _, path = part.partition(":")
    return name, _absolute(path)


def _absolute(path: str) -> str:
    return path if _URI.match(path) else os.path.abspath(os.path.expanduser(path))


def _told_apart(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    answer: dict[str, str] = {}
    for name, path in named:
        prefix = base = name or os.path.basename(path) or path
        number = 2
        while prefix in answer:
            prefix, number = f"{base} ({number})", number + 1
        answer[prefix] = path
    return list(answer.items())


logger = tb_logging.get_logger()


class TorchCompilePlugin(base_plugin.TBPlugin):
    """Routes and nothing else."""

    plugin_name = "torch_compile"

    def __init__(self, context: base_plugin.TBContext) -> None:
        folders = logdirs(context)
        self._logdir = ",".join(path for _, path in folders)
        self._session = Session(folders)
        self._activity = BackgroundFlag(lambda: bool(self._session.runs().runs))
        self._activity.look_again()

    def is_active(self) -> bool:
        """Whether the logdir held anything of ours when last looked at; looks again in the background."""
        self._activity.look_again()
        return self._activity.active

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="TORCH COMPILE")

    def get_plugin_apps(self) -> Mapping[str, WSGIApplication]:
        questions = {
            f"/{name}": responses.route(partial(self._answer, route)) for name, route in ROUTES.items()
        }
        static = responses.route(self._static)
        return {
            **questions,
            "/reading": responses.route(self._stop_reading, ["DELETE"]),
            "/definitions": responses.route(self._definitions),
            "/terms": responses.route(self._terms),
            "/export": responses.route(self._export),
            "/static/index.js": static,  # TensorBoard asks that the entry module be a route of its own
            "/static/*": static,
        }

    def _answer(self, route: Route[Any], request: Request) -> Response:
        """202 with the progress while the trace is being read: nobody waits in a request thread."""
        return responses.answer(request, poll(self._session, route, request.args))

    def _stop_reading(self, request: Request) -> Response:
        """DELETE: whoever polled this span has left. Browsers ask before they let another site send one."""
        responses.refuse_other_sites(request)
        read = [side for side in ("", "2") if request.args.get(f"span{side}")]  # who compared waited for both
        for side in read or [""]:
            self._session.cancel(*values(span_ids(side), request.args))
        return responses.nothing()

    def _definitions(self, request: Request) -> Response:
        return responses.html(request, page())

    def _terms(self, request: Request) -> Response:
        return responses.json(request, terms())

    def _export(self, request: Request) -> Response:
        """A run as one file, made while it is sent."""
        run, worker, span = values(side_ids(), request.args)
        export = Export(self._session, Chosen(run=run, worker=worker, span=span, logdir=self._logdir))
        return responses.download(Download(f"{export.title}.html", started(export.blocks())))

    def _static(self, request: Request) -> Response:
        return responses.static(request, request.path.partition("/static/")[2])


class BackgroundFlag:
    """A flag that one background thread at a time brings up to date, so that no request waits for a walk."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self.active = False
        self._look = look
        self._looking = threading.Lock()

    def look_again(self) -> None:
        if self._looking.acquire(blocking=False):
            threading.Thread(target=self._run, name="tb-torchcompile-activity", daemon=True).start()

    def _run(self) -> None:
        try:
            self.active = self._look()
        except Exception as error:
            logger.error("Could not look through the logdir: %s: %s", type(error).__name__, error)
        finally:
            self._looking.release()
