"""Request every route of a logdir as the tab does: with the ids from the listing, and with wrong ones."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from werkzeug.test import Client

import benchmarks  # noqa: F401  # puts the tests' helpers on the path
from served import ROOT, make_client, make_plugin
from tb_torchcompile_plugin.api.routes import ROUTES

_TIMEOUT_S = 50.0
_WITHOUT_ID = {
    "from": "0",
    "to": "100000000",
    "width": "300",
    "lanes": "0,1",
    "at": "0",
    "q": "a",
    "rank": "1",
}
_ODD_IDS = ("0", "1", "999999999", "0/0", "1/0", "", "x", "‮", "nccl", "0\n1")


def check_routes(logdir: Path, draw: random.Random) -> str:
    """Return "read" or "refused". Raises AssertionError if a route fails, or answers with invalid JSON."""
    plugin = make_plugin(logdir)
    client = make_client(plugin)
    try:
        runs = client.get(f"{ROOT}/runs").get_json()["runs"]
        statuses = {_request(client, name, ids) for name, ids in _requests(runs, draw)}
    finally:
        plugin._session.close()
    return "read" if 200 in statuses else "refused"


def _requests(runs: list[dict], draw: random.Random) -> Iterator[tuple[str, dict[str, str]]]:
    for run in runs:
        worker = draw.choice(run["workers"])
        span = draw.choice(worker["spans"])["span"] if worker["spans"] else ""
        ids = {"run": run["run"], "worker": worker["worker"], "span": span}
        both = {**ids, **{f"{name}2": value for name, value in ids.items()}}
        for name, route in ROUTES.items():
            names = [key for parameter in (*route.subject.ids, *route.parameters) for key in parameter.names]
            valid = {**_WITHOUT_ID, **both}
            ids_of_route = {
                key: valid.get(key) or draw.choice(_ODD_IDS)
                for key in names
                if key in valid or draw.random() < 0.9
            }
            yield name, ids_of_route


def _request(client: Client, name: str, ids: dict[str, str]) -> int:
    deadline = time.monotonic() + _TIMEOUT_S
    while (response := client.get(f"{ROOT}/{name}", query_string=ids)).status_code == 202:
        assert time.monotonic() < deadline, f"{name} {ids}: still not there"
        time.sleep(0.02)
    assert response.status_code in (200, 400, 404, 422), f"{name} {ids}: {response.status_code}"
    if response.mimetype == "application/json":
        json.loads(response.get_data().decode("utf-8"), parse_constant=_reject)
    return response.status_code


def _reject(constant: str) -> None:
    raise AssertionError(f"{constant} in an answer")
