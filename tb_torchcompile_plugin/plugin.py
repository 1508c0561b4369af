"""The tab's HTTP routes under `data/plugin/torch_compile/`, described in docs/http.md.

All but one are read-only; `reading` stops the reading of a trace. Parameters are ids that discovery made, never
paths: what is asked for is looked up, nothing is joined to a folder. The answers come from `api`; this module only
carries them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
from tensorboard.plugins import base_plugin
from tensorboard.util import tb_logging
from werkzeug import Request, Response

from tb_torchcompile_plugin import responses
from tb_torchcompile_plugin.api import Session
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.logdir_flags import logdirs
from tb_torchcompile_plugin.readings import Progress
from tb_torchcompile_plugin.span_answers import QUESTIONS
from tb_torchcompile_plugin.timeline_answers import Download

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

logger = tb_logging.get_logger()


class TorchCompilePlugin(base_plugin.TBPlugin):
    """Routes and nothing else."""

    plugin_name = "torch_compile"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._session = Session(logdirs(context))
        self._activity = Activity(lambda: bool(self._session.runs().runs))
        self._activity.look_again()

    def is_active(self) -> bool:
        """Whether the logdir held anything of ours when last looked at; looks again in the background."""
        self._activity.look_again()
        return self._activity.active

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="TORCH COMPILE")

    def get_plugin_apps(self) -> Mapping[str, WSGIApplication]:
        routes: dict[str, Callable[[Request], Response]] = {
            "/runs": self._runs,
            "/compile": self._compile,
            "/compile_time": self._compile_time,
            "/compilations": self._compilations,
            "/rank_differences": self._rank_differences,
            "/compilation": self._compilation,
            "/guards": self._guards,
            "/artifact": self._artifact,
            "/kernel": self._kernel,
            "/compare": partial(self._compare, "compare"),
            "/compare_tables": partial(self._compare, "compare_tables"),
            **{f"/{question}": partial(self._question, question) for question in QUESTIONS},
            "/memory": self._memory,
            "/timeline_window": self._timeline_window,
            "/timeline_slice": self._timeline_slice,
            "/timeline_search": self._timeline_search,
            "/timeline_range": self._timeline_range,
            "/timeline_trim": self._timeline_trim,
            "/trace_file": self._trace_file,
            "/findings": self._findings,
            "/static/index.js": self._static,  # TensorBoard asks that the entry module be a route of its own
            "/static/*": self._static,
        }
        apps = {path: responses.route(respond) for path, respond in routes.items()}
        return {**apps, "/reading": responses.route(self._stop_reading, ["DELETE"])}

    def _runs(self, request: Request) -> Response:
        return responses.json(request, self._session.runs())

    def _compile(self, request: Request) -> Response:
        return responses.json(request, self._session.compile(*_ids(request, "run", "worker")))

    def _compile_time(self, request: Request) -> Response:
        return responses.json(request, self._session.compile_time(*_ids(request, "run", "worker")))

    def _compilations(self, request: Request) -> Response:
        return responses.json(request, self._session.compilations(*_ids(request, "run", "worker")))

    def _rank_differences(self, request: Request) -> Response:
        return responses.json(request, self._session.rank_differences(*_ids(request, "run")))

    def _compilation(self, request: Request) -> Response:
        return responses.json(request, self._session.compilation(*_compile_ids(request)))

    def _guards(self, request: Request) -> Response:
        return responses.json(request, self._session.guards(*_compile_ids(request)))

    def _artifact(self, request: Request) -> Response:
        run, worker = _ids(request, "run", "worker")
        return responses.text(request, self._session.artifact(run, worker, _number(request, "id")))

    def _findings(self, request: Request) -> Response:
        """A worker without a trace has findings, too."""
        if request.args.get("span"):
            return self._question("findings", request)
        return responses.json(request, self._session.worker_findings(*_ids(request, "run", "worker")))

    def _question(self, question: str, request: Request) -> Response:
        """202 with the progress while the trace is being read: nobody waits in a request thread."""
        return _told(request, self._session.poll(question, *_span_ids(request)))

    def _memory(self, request: Request) -> Response:
        """Of the whole span, or of a stretch of it."""
        if "from" not in request.args:
            return self._question("memory", request)
        return _told(request, self._session.poll_memory(*_span_ids(request), *_window(request)))

    def _kernel(self, request: Request) -> Response:
        device, name = _ids(request, "device", "name")
        launched_by = {key: request.args.get(key, "") for key in ("compile_id", "graph_key")}
        ids = _span_ids(request)
        return _told(request, self._session.poll_kernel(*ids, device=device, name=name, **launched_by))

    def _compare(self, question: Literal["compare", "compare_tables"], request: Request) -> Response:
        sides = _side_ids(request), _side_ids(request, "2")
        return _told(request, self._session.poll_compare(question, *sides))

    def _timeline_window(self, request: Request) -> Response:
        width, lanes = _number(request, "width"), _numbers(request, "lanes")
        answer = self._session.timeline_window(_span_ids(request), *_window(request), width, lanes)
        if isinstance(answer, Progress):
            return _told(request, answer)
        return responses.binary(request, answer)

    def _timeline_slice(self, request: Request) -> Response:
        lane, row = _number(request, "lane", -1), _number(request, "row")
        return _told(request, self._session.timeline_slice(_span_ids(request), lane, row))

    def _timeline_search(self, request: Request) -> Response:
        window = _window(request) if "from" in request.args or "to" in request.args else None
        (query,) = _ids(request, "q")
        answer = self._session.timeline_search(
            _span_ids(request),
            query,
            window,
            _numbers(request, "lanes"),
            at=_time(request, "at", 0),
            offset=_number(request, "offset", 0),
            limit=_number(request, "limit", 100),
        )
        return _told(request, answer)

    def _timeline_range(self, request: Request) -> Response:
        return _told(request, self._session.timeline_range(_span_ids(request), *_window(request)))

    def _timeline_trim(self, request: Request) -> Response:
        return _download(request, self._session.timeline_trim(_span_ids(request), *_window(request)))

    def _trace_file(self, request: Request) -> Response:
        return _download(request, self._session.trace_file(_span_ids(request)))

    def _stop_reading(self, request: Request) -> Response:
        """DELETE: whoever polled this span has left. Browsers ask before they let another site send one."""
        responses.refuse_other_sites(request)
        self._session.cancel_span(*_span_ids(request))
        if request.args.get("span2"):  # whoever compared waited for both
            self._session.cancel_span(*_side_ids(request, "2"))
        return responses.nothing()

    def _static(self, request: Request) -> Response:
        return responses.static(request, request.path.partition("/static/")[2])


def _told(request: Request, answer: msgspec.Struct | Progress) -> Response:
    """As JSON; 202 with the progress while the trace is being read."""
    if isinstance(answer, Progress):
        return responses.json(request, {"progress": answer}, 202)
    return responses.json(request, answer)


def _download(request: Request, answer: Download | Progress) -> Response:
    if isinstance(answer, Progress):
        return _told(request, answer)
    return responses.download(answer.name, answer.blocks, answer.size)


class Activity:
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


def _ids(request: Request, *names: str) -> list[str]:
    missing = [name for name in names if not request.args.get(name)]
    if missing:
        raise BadRequest(f"these parameters are missing: {', '.join(missing)}", next_step="See docs/http.md")
    return [request.args[name] for name in names]


def _number(request: Request, name: str, default: int | None = None) -> int:
    if default is not None and name not in request.args:
        return default
    (text,) = _ids(request, name)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"{name} is not a number", next_step="See docs/http.md")
    return int(text)


def _span_ids(request: Request) -> tuple[str, str, str]:
    run, worker, span = _ids(request, "run", "worker", "span")
    return run, worker, span


def _compile_ids(request: Request) -> tuple[str, str, int, str]:
    run, worker, compile_id = _ids(request, "run", "worker", "compile_id")
    return run, worker, _number(request, "epoch"), compile_id


def _side_ids(request: Request, side: str = "") -> tuple[str, str, str]:
    """Of a comparison; without a span what the worker compiled."""
    run, worker = _ids(request, f"run{side}", f"worker{side}")
    return run, worker, request.args.get(f"span{side}", "")


def _window(request: Request) -> tuple[int, int]:
    return _time(request, "from"), _time(request, "to")


def _time(request: Request, name: str, default: int | None = None) -> int:
    """Nanoseconds, also before the trace's first event."""
    if default is not None and name not in request.args:
        return default
    (text,) = _ids(request, name)
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise BadRequest(f"{name} is not a number of nanoseconds", next_step="See docs/http.md")
    return int(text)


def _numbers(request: Request, name: str) -> list[int]:
    """Numbers with commas between them; without the parameter none."""
    text = request.args.get(name, "")
    if not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", text, re.ASCII):
        raise BadRequest(f"{name} is not a list of numbers", next_step="See docs/http.md")
    return [int(part) for part in text.split(",")] if text else []
