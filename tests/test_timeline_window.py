"""Windows of the timeline, through TensorBoard's own application and the bytes that a browser gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client

from test_plugin import ROOT, SPAN, ask_span, error_of, make_client, make_plugin


@pytest.fixture
def client(recording: Callable[[str], Path]) -> Client:
    opened = make_client(make_plugin(recording("breaks")))
    assert ask_span(opened, SPAN).status_code == 200
    return opened


def decoded(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Header and columns, read as docs/http.md describes them."""
    length = int.from_bytes(body[:4], "little")
    assert (4 + length) % 8 == 0
    header = json.loads(body[4 : 4 + length])
    columns = {
        name: np.frombuffer(body, "<" + column["dtype"], column["length"], 4 + length + column["offset"])
        for name, column in header["columns"].items()
    }
    return header, columns


def ask(client: Client, **parameters: Any) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    response = client.get(f"{ROOT}/timeline_window", query_string=SPAN | parameters)
    assert (response.status_code, response.mimetype) == (200, "application/octet-stream")
    return decoded(response.data)


def test_the_whole_recording_in_every_lane(client: Client) -> None:
    lanes = client.get(f"{ROOT}/timeline", query_string=SPAN).get_json()
    start, end = lanes["extent"]
    header, columns = ask(
        client,
        **{"from": start, "to": end, "width": 1000},
        lanes=",".join(str(lane["id"]) for lane in lanes["lanes"]),
    )
    assert header["aligned"][0] <= start
    assert header["aligned"][1] >= end
    for lane in lanes["lanes"]:
        if lane["kind"] != "counter":
            here = columns["lane"] == lane["id"]
            assert columns["count"][here].sum() == lane["slices"]
            assert columns["depth"][here].max() == lane["depths"] - 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"from": "x"}, "from is not a number"),
        ({"from": 10, "to": 10}, "ends before it begins"),
        ({"from": 20, "to": 10}, "ends before it begins"),
        ({"from": 10**15, "to": 10**16}, "lies outside of"),
        ({"width": 0}, "width is not between"),
        ({"width": 10**6}, "width is not between"),
        ({"width": -1}, "width is not a number"),
        ({"lanes": "0,x"}, "lanes is not a list"),
        ({"lanes": "0,999"}, "there is no lane 999"),
        ({"to": ""}, "parameters are missing: to"),
    ],
)
def test_what_cannot_be_shown_is_said(client: Client, wrong: dict[str, Any], told: str) -> None:
    asked = SPAN | {"from": 0, "to": 10**6, "width": 500, "lanes": "0"} | wrong
    response = client.get(f"{ROOT}/timeline_window", query_string=asked)
    assert response.status_code == 400
    assert told in error_of(response)["message"]
