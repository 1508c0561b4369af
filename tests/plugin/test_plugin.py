"""The routes, asked through TensorBoard's own WSGI application."""

import argparse
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from profiles import SPAN_QUESTIONS
from recordings import Recording
from served import BREAKS, ROOT, SPAN, ask_span, error_of, make_client, make_plugin, wait_for
from tb_torchcompile_plugin.api.catalog import Runs
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.plugin import plugin, responses
from tb_torchcompile_plugin.plugin.plugin import logdirs


@pytest.fixture
def client(recording: Recording) -> Client:
    return make_client(make_plugin(recording("breaks")))


class TestAnswers:
    def test_runs_lists_the_content_of_the_logdir(self, client: Client) -> None:
        answer = client.get(f"{ROOT}/runs").get_json()
        assert (answer["schema_version"], answer["plugin_version"]) == (2, "0.2.0")
        (run,) = answer["runs"]
        (worker,) = run["workers"]
        assert (run["run"], worker["worker"], worker["rank"]) == (".", "vm_1027", None)
        assert worker["has_compile"] is True
        (span,) = worker["spans"]
        assert span["span"] == SPAN["span"]
        assert span["trace_file"] == "vm_1027.1795230252555613000.pt.trace.json"

    @pytest.mark.parametrize("question", SPAN_QUESTIONS)
    def test_each_question_has_a_route(self, client: Client, question: str) -> None:
        assert ask_span(client, SPAN, question).status_code == 200

    def test_memory_of_a_stretch(self, recording: Recording) -> None:
        client = make_client(make_plugin(recording("key_averages")))
        runs = client.get(f"{ROOT}/runs").get_json()["runs"]
        worker = next(row for row in runs[0]["workers"] if row["worker"] == "key_averages_eager_shapes")
        ids = {"run": ".", "worker": worker["worker"], "span": worker["spans"][0]["span"]}
        whole = ask_span(client, ids, "memory").get_json()
        stretch = {**ids, "from": "8000000", "to": "11000000"}
        part = client.get(f"{ROOT}/memory", query_string=stretch).get_json()
        assert 0 < part["all_allocations"] < whole["all_allocations"]
        del stretch["to"]
        response = client.get(f"{ROOT}/memory", query_string=stretch)
        assert response.status_code == 400 and error_of(response)["code"] == "bad_request"

    @pytest.mark.parametrize("seconds_left", [None, float("nan")])
    def test_a_trace_that_is_still_being_read_is_202_with_progress(
        self, monkeypatch: pytest.MonkeyPatch, seconds_left: float | None
    ) -> None:
        progress = Progress("x.pt.trace.json", 10, 100, 7, seconds_left)
        monkeypatch.setattr(plugin, "poll", lambda *_: progress)
        response = make_client(make_plugin()).get(f"{ROOT}/span", query_string=SPAN)
        assert response.status_code == 202
        assert response.get_json() == {"progress": {**vars(progress), "seconds_left": None}}

    def test_routes_work_below_a_path_prefix(self, recording: Recording) -> None:
        client = make_client(make_plugin(recording("breaks")), "/some/prefix")
        assert client.get(f"/some/prefix{ROOT}/runs").status_code == 200
        assert client.get(f"/some/prefix{ROOT}/static/index.js").status_code == 200


class TestErrors:
    def test_missing_parameters_are_named(self, client: Client) -> None:
        response = client.get(f"{ROOT}/span", query_string={"run": ".", "span": ""})
        assert response.status_code == 400
        error = error_of(response)
        assert error["code"] == "bad_request"
        assert "worker, span" in error["message"]

    def test_a_query_in_another_encoding(self, client: Client) -> None:
        response = client.get(f"{ROOT}/span", environ_overrides={"QUERY_STRING": "run=\xc3="})
        assert response.status_code == 400 and error_of(response)["code"] == "bad_request"

    @pytest.mark.parametrize(
        "ids",
        [
            {**BREAKS, "span": "7"},
            {**BREAKS, "run": "elsewhere"},
            {**BREAKS, "worker": "nobody"},
            {"run": "..", "worker": "vm_1027"},
            {"run": "/etc", "worker": "passwd"},
            {"run": ".", "worker": "../../../etc/passwd"},
            {"run": "\0", "worker": "\0"},
        ],
    )
    def test_ids_that_discovery_did_not_make_are_not_found(self, client: Client, ids: dict[str, str]) -> None:
        response = client.get(f"{ROOT}/{'span' if 'span' in ids else 'compile'}", query_string=ids)
        assert response.status_code == 404
        assert error_of(response)["code"] == "not_found"

    def test_a_worker_without_compile_data_explains_how_to_get_it(self, recording: Recording) -> None:
        client = make_client(make_plugin(recording("resnet18_eager")))
        response = client.get(f"{ROOT}/compile", query_string={"run": ".", "worker": "vm_1119"})
        assert response.status_code == 404
        error = error_of(response)
        assert error["code"] == "no_compile_data"
        assert "tensorboard_trace_handler" in error["next_step"]

    def test_an_unreadable_trace_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "w.1.pt.trace.json").write_text("not a trace")
        response = ask_span(make_client(make_plugin(tmp_path)), {"run": ".", "worker": "w", "span": "1"})
        assert response.status_code == UserError.status
        error = error_of(response)
        assert error["code"] == "unreadable"
        assert "w.1.pt.trace.json" in error["file"]

    def test_an_unexpected_exception_is_one_log_line_and_no_traceback(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("secret\ndetails")

        client = make_client(make_plugin())
        monkeypatch.setattr(plugin, "poll", fail)
        monkeypatch.setattr(responses.logger, "propagate", True)
        with caplog.at_level(logging.ERROR):
            response = client.get(f"{ROOT}/runs")
        assert response.status_code == 500
        assert error_of(response)["code"] == "internal"
        assert "secret" not in response.get_data(as_text=True)
        (line,) = [record.getMessage() for record in caplog.records if "/runs failed" in record.getMessage()]
        assert "RuntimeError: secret details (" in line
        assert "test_plugin.py:" in line

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    @pytest.mark.parametrize("route", ["runs", "compile", "span", "static/index.js"])
    def test_everything_is_read_only(self, client: Client, method: str, route: str) -> None:
        response = client.open(f"{ROOT}/{route}", method=method)
        assert response.status_code == 405
        assert response.headers["Allow"] == "GET, HEAD"
        assert error_of(response)["code"] == "bad_request"


class TestTransport:
    def test_large_answers_are_compressed_for_those_who_can(self, client: Client) -> None:
        plain = client.get(f"{ROOT}/compile", query_string=BREAKS)
        packed = client.get(f"{ROOT}/compile", query_string=BREAKS, headers={"Accept-Encoding": "gzip"})
        assert "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Encoding"] == "gzip"
        assert len(packed.data) < len(plain.data) / 2
        assert int(plain.headers["Content-Length"]) == len(plain.data)

    def test_head_has_headers_and_no_body(self, client: Client) -> None:
        response = client.head(f"{ROOT}/runs")
        assert (response.status_code, response.data) == (200, b"")
        assert int(response.headers["Content-Length"]) > 0

    def test_an_answer_that_is_still_valid_is_not_sent_again(self, client: Client) -> None:
        first = client.get(f"{ROOT}/runs")
        assert "no-cache" in first.headers["Cache-Control"]
        again = client.get(f"{ROOT}/runs", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        # TensorBoard warns in the terminal about answers without a type
        assert again.mimetype == "application/json"
        other = client.get(
            f"{ROOT}/compile", query_string=BREAKS, headers={"If-None-Match": first.headers["ETag"]}
        )
        assert other.status_code == 200


class TestStatic:
    @pytest.fixture(autouse=True)
    def _static_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "secret.txt").write_text("secret")
        folder = tmp_path / "static"
        (folder / "folder").mkdir(parents=True)
        (folder / "folder" / "secret.js").write_text("secret")
        for name in ("index.js", "index.css", "data.bin"):
            (folder / name).write_text("public")
        monkeypatch.setattr(responses, "STATIC", folder)

    @pytest.mark.parametrize(
        ("name", "mime_type"),
        [
            ("index.js", "text/javascript"),
            ("index.css", "text/css"),
            ("data.bin", "application/octet-stream"),
        ],
    )
    def test_mime_types(self, name: str, mime_type: str) -> None:
        response = make_client(make_plugin()).get(f"{ROOT}/static/{name}")
        assert (response.status_code, response.mimetype, response.data) == (200, mime_type, b"public")
        assert response.headers["X-Content-Type-Options"] == "nosniff"

    @pytest.mark.parametrize(
        "path",
        [
            *("../secret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt", "..%5csecret.txt"),
            *("..\\secret.txt", "folder/../../secret.txt", "folder/secret.js", "folder", "", "."),
            *("..", "/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd", "index.js%00.css", "%00"),
            *("index.js/", "index.js/static/../../secret.txt", "static/index.js", "C:%5cindex.js"),
            "file:///etc/passwd",
        ],
    )
    def test_only_files_of_the_folder_itself(self, path: str) -> None:
        response = make_client(make_plugin()).get(f"{ROOT}/static/{path}")
        assert b"secret" not in response.data
        assert b"root:" not in response.data
        assert response.status_code == 404

    def test_files_may_be_links(self, tmp_path: Path) -> None:
        """Some installers link packages into place instead of copying them."""
        (tmp_path / "stored.js").write_text("public")
        (tmp_path / "static" / "linked.js").symlink_to(tmp_path / "stored.js")
        assert make_client(make_plugin()).get(f"{ROOT}/static/linked.js").data == b"public"


class TestActivity:
    def test_active_once_the_logdir_has_a_run(self, recording: Recording) -> None:
        wait_for(make_plugin(recording("breaks")).is_active)

    def test_a_logdir_that_appears_later_is_found(self, tmp_path: Path) -> None:
        logdir = tmp_path / "later"
        plugin = make_plugin(logdir)
        time.sleep(0.05)
        assert not plugin.is_active()
        logdir.mkdir()
        (logdir / "w.1.pt.trace.json").write_text('{"traceEvents": []}')
        wait_for(plugin.is_active)

    def test_asking_never_waits_for_the_walk(
        self, recording: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        walks, go_on = [], threading.Event()
        look = Session.runs

        def look_slowly(session: Session) -> Runs:
            walks.append(1)
            go_on.wait(60)
            return look(session)

        monkeypatch.setattr(Session, "runs", look_slowly)
        plugin = make_plugin(recording("breaks"))
        for _ in range(50):
            assert not plugin.is_active() and len(walks) <= 1
        go_on.set()
        wait_for(plugin.is_active)

    def test_a_walk_that_fails_leaves_the_flag_and_the_next_one_counts(
        self, recording: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Session, "runs", lambda _: 1 / 0)
            plugin = make_plugin(recording("breaks"))
            assert not plugin.is_active()
        wait_for(plugin.is_active)

    def test_tab_and_entry_module(self) -> None:
        plugin = make_plugin()
        metadata = plugin.frontend_metadata()
        assert metadata.tab_name == "TORCH COMPILE"
        assert metadata.es_module_path in plugin.get_plugin_apps()
        assert plugin.plugin_name == "torch_compile"


class TestLogdirs:
    def of(self, logdir: str | None = None, spec: str = "") -> list[tuple[str, str]]:
        return logdirs(TBContext(logdir=logdir, flags=argparse.Namespace(logdir=logdir, logdir_spec=spec)))

    def test_a_plain_folder_has_no_prefix(self, tmp_path: Path) -> None:
        for folder in (str(tmp_path), "/x/a,/x/b"):  # TensorBoard itself splits only `--logdir_spec`
            assert self.of(folder) == [("", folder)]

    def test_a_relative_folder_and_a_home_are_made_absolute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/somebody")
        assert self.of("~/runs") == [("", "/home/somebody/runs")]
        assert self.of("runs") == [("", str(Path.cwd() / "runs"))]

    def test_nothing_given(self) -> None:
        assert self.of() == []
        assert logdirs(TBContext()) == []

    @pytest.mark.parametrize(
        ("spec", "folders"),
        [
            ("a:/x/one,b:/y/two:with colon", [("a", "/x/one"), ("b", "/y/two:with colon")]),
            ("/x/runs,/y/runs,runs:/z", [("runs", "/x/runs"), ("runs (2)", "/y/runs"), ("runs (3)", "/z")]),
            ("/only/one", [("", "/only/one")]),
            ("/a:b/c", [("", "/a:b/c")]),
            ("gs://bucket/runs,a:gs://bucket/b", [("runs", "gs://bucket/runs"), ("a", "gs://bucket/b")]),
        ],
        ids=["named", "not named", "alone", "a colon that ends no name", "a bucket is no name"],
    )
    def test_a_spec_names_its_folders(self, spec: str, folders: list[tuple[str, str]]) -> None:
        assert self.of(spec=spec) == folders

    def test_runs_of_a_spec_carry_its_names(self, recording: Recording) -> None:
        spec = f"first:{recording('breaks')},second:{recording('resnet18_eager')}"
        answer = make_client(make_plugin(spec=spec)).get(f"{ROOT}/runs").get_json()
        assert [run["run"] for run in answer["runs"]] == ["first", "second"]

    def test_a_folder_that_is_not_there_is_a_warning(self, tmp_path: Path) -> None:
        answer = make_client(make_plugin(tmp_path / "nothing")).get(f"{ROOT}/runs").get_json()
        assert answer["runs"] == []
        assert len(answer["warnings"]) == 1


OWN_HOSTS = (
    *("localhost:6006", "LOCALHOST.", "tb.localhost", "127.0.0.1:6006", "[::1]:6006", "[::1]"),
    *("192.168.0.7", ""),
    socket.gethostname(),
    f"{socket.gethostname().upper()}:6006",
)
OTHER_HOSTS = (
    *("evil.example:6006", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost"),
    *("localhost:x", "[evil]", "me@localhost", "evil.example,a.localhost"),
    *("evil.example@a.localhost", "evil.example/.localhost"),
)
NO_PROXY = dict.fromkeys(("TENSORBOARD_PROXY_URL", "JUPYTERHUB_SERVICE_PREFIX", "COLAB_RELEASE_TAG"), "")


@pytest.mark.parametrize(
    ("host", "flags", "environment", "status"),
    [
        *((host, {}, {}, 200) for host in OWN_HOSTS),
        *((host, {}, {}, 403) for host in OTHER_HOSTS),
        ("GPU.lab.:6006", {"host": "gpu.lab"}, {}, 200),
        ("evil.example", {"host": "gpu.lab"}, {}, 403),
        ("proxy.example", {"bind_all": True}, {}, 200),
        ("proxy.example", {"path_prefix": "/user/me/proxy/6006"}, {}, 200),
        *(("proxy.example", {"host": host}, {}, 200) for host in ("0.0.0.0", "::")),
        ("proxy.example", {}, {"TB_TORCHCOMPILE_HOSTS": "other, Proxy.example:80"}, 200),
        ("proxy.example", {}, {"TB_TORCHCOMPILE_HOSTS": "*"}, 200),
        ("hub.example", {}, {"TENSORBOARD_PROXY_URL": "/proxy/%PORT%/"}, 200),
        ("hub.example", {}, {"JUPYTERHUB_SERVICE_PREFIX": "/user/me/"}, 200),
        ("x-6006.colab.googleusercontent.com", {}, {"COLAB_RELEASE_TAG": "release-colab_20260101"}, 200),
    ],
)
def test_a_name_that_another_site_may_own_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    flags: dict[str, Any],
    environment: dict[str, str],
    status: int,
) -> None:
    for name, value in {**NO_PROXY, **environment}.items():
        monkeypatch.setenv(name, value)
    client = make_client(make_plugin(tmp_path, **flags))
    for path in ("runs", "export", "static/index.js"):
        answer = client.get(f"{ROOT}/{path}", query_string=SPAN, headers={"Host": host})
        assert (answer.status_code == 403) == (status == 403 and not path.startswith("static"))
