"""An S3 server of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from tb_torchcompile_plugin.logdir import filesystem


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


def forget_stores() -> None:
    """Clients keep the address of the server that they were made for."""
    filesystem._store.cache_clear()
    S3FileSystem.clear_instance_cache()
