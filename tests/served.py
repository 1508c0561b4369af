"""The plugin behind TensorBoard's own WSGI application, and how a test asks it."""

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem
from tensorboard.backend.application import TensorBoardWSGI
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client, TestResponse

from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.logdir import filesystem
from tb_torchcompile_plugin.plugin.loader import TorchCompileLoader
from tb_torchcompile_plugin.plugin.plugin import TorchCompilePlugin

Value = TypeVar("Value")
ROOT = "/data/plugin/torch_compile"
BREAKS = {"run": ".", "worker": "vm_1027"}
SPAN = {**BREAKS, "span": "1795230252555613000"}


def make_plugin(logdir: Path | str = "", spec: str = "", **more: Any) -> TorchCompilePlugin:
    flags = argparse.Namespace(logdir=str(logdir), logdir_spec=spec, **more)
    plugin = TorchCompileLoader().load(TBContext(logdir=str(logdir), flags=flags))
    assert isinstance(plugin, TorchCompilePlugin)
    return plugin


def make_client(plugin: TorchCompilePlugin, prefix: str = "") -> Client:
    return Client(TensorBoardWSGI([plugin], prefix))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_the_end(ask: Callable[[], Value | Progress]) -> Value:
    """The first answer that is no progress."""
    deadline = time.monotonic() + 180
    while isinstance(answer := ask(), Progress):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


def ask_span(client: Client, ids: dict[str, str], question: str = "span") -> TestResponse:
    """Poll as the tab does."""
    deadline = time.monotonic() + 180
    while (response := client.get(f"{ROOT}/{question}", query_string=ids)).status_code == 202:
        assert set(response.get_json()) == {"progress"} and time.monotonic() < deadline
        time.sleep(0.02)
    return response


def error_of(response: TestResponse) -> dict[str, str]:
    """The one shape of errors: exactly these keys, all of them text, the message one line."""
    assert response.mimetype == "application/json"
    body = response.get_json()
    assert list(body) == ["error"]
    error: dict[str, str] = body["error"]
    assert set(error) == {"code", "message", "file", "next_step"}
    assert all(isinstance(value, str) for value in error.values())
    assert error["message"]
    assert "\n" not in error["message"]
    assert "Traceback" not in response.get_data(as_text=True)
    return error


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Its address, with one empty bucket; the environment says how to get there, to other processes as well."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        forget_stores()
        filesystem._store(f"s3://{bucket}").mkdir(bucket)
        yield f"http://{host}:{port}"
        forget_stores()
        moto.stop()


def upload(files: Any, folder: Path, target: str) -> None:
    """All files below a folder, into a store."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.pipe_file(f"{target}/{path.relative_to(folder)}", path.read_bytes())


def forget_stores() -> None:
    """Clients keep the address of the server that they were made for."""
    filesystem._store.cache_clear()
    S3FileSystem.clear_instance_cache()
