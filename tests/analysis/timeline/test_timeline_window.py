"""Windows of the timeline, through TensorBoard's own application and the bytes that a browser gets."""

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.test import Client

from profiles import profile_of
from recordings import Recording
from served import ROOT, SPAN, ask_span, error_of, make_client, make_plugin, wait_for
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime import span_report as report
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import Gpu, gpus
from tb_torchcompile_plugin.analysis.timeline.timeline import Rectangles, Timeline, Window, encoded
from tb_torchcompile_plugin.profile.level_of_detail import MergedSlices
from tb_torchcompile_plugin.profile.profile import Profile
from traces import slice_, write_trace


@pytest.fixture(scope="module")
def client(recording: Recording) -> Client:
    opened = make_client(make_plugin(recording("breaks")))
    assert ask_span(opened, SPAN).status_code == 200
    return opened


def decoded(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Header and columns, read as docs/reference/routes.md describes them."""
    length = int.from_bytes(body[:4], "little")
    assert (4 + length) % 8 == 0
    header = json.loads(body[4 : 4 + length])
    columns = {
        name: column_of(body, column["dtype"], column["length"], 4 + length + column["offset"])
        for name, column in header["columns"].items()
    }
    for times in ("start", "counter_start"):
        columns[times] = columns[times] + float(header["aligned"][0])
    return header, columns


def column_of(body: bytes, dtype: str, length: int, at: int) -> np.ndarray[Any, Any]:
    if dtype != "i5":
        return np.frombuffer(body, f"<{dtype}", length, at)
    low, high = np.frombuffer(body, "<u4", length, at), np.frombuffer(body, "i1", length, at + 4 * length)
    return low + high * 2.0**32


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
    ("reach", "dtype"),
    [
        (200, "u1"),
        (-200, "i4"),
        (60_000, "u2"),
        (1 << 32, "i5"),
        (-(1 << 39), "i5"),
        (1 << 39, "f8"),
        (-(1 << 50), "f8"),
    ],
)
def test_times_travel_exactly_in_the_shortest_type(reach: int, dtype: str) -> None:
    starts = np.array([reach, 7, reach // 3])
    runs = MergedSlices(*[np.zeros(3, np.int64)] * 7)._replace(start=1000 + starts, end=1000 + starts + 5)
    none = np.zeros(3, np.int64)
    drawn = Rectangles(none, runs, none, none.astype(np.uint8))
    body = encoded(Window(1000, 2000, 0, ["a"], drawn, {}), 1000, 2000, 10)
    header, columns = decoded(body)
    assert header["columns"]["start"]["dtype"] == dtype
    assert columns["start"].tolist() == (starts + 1000).tolist()
    assert columns["dur"].tolist() == [5, 5, 5]


def test_a_window_travels_as_it_was_made(client: Client, recording: Recording) -> None:
    (path,) = recording("breaks").glob("*.pt.trace.json")
    timeline = profile_of(path).of(Timeline)
    lanes = range(len(timeline.lanes))
    window = timeline.window(-500, 7_000_000, 300, lanes)
    header, columns = decoded(encoded(window, -500, 7_000_000, 300))
    drawn, runs = window.rectangles, window.rectangles.runs
    made = {"lane": drawn.lane, "depth": runs.group, "start": runs.start, "dur": runs.end - runs.start}
    made |= {"row": runs.row, "count": runs.size, "color": drawn.color}
    for name, values in made.items():
        assert columns[name].tolist() == values.tolist()
    assert [header["names"][code] for code in columns["name"]] == [window.names[code] for code in drawn.name]
    covered = columns["busy"] / 65535 * columns["dur"]
    assert np.allclose(covered[columns["dur"] > 0], runs.covered[columns["dur"] > 0], rtol=1e-3, atol=1)
    for lane, points in window.counters.items():
        here = columns["counter_lane"] == lane
        assert columns["counter_start"][here].tolist() == points.start.tolist()
        assert columns["counter_max"][here].tolist() == points.greatest.astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"from": "x"}, "from is not a number"),
        ({"from": 10, "to": 10}, "ends before it begins"),
        ({"from": 20, "to": 10}, "ends before it begins"),
        ({"from": 10**15, "to": 10**16}, "is outside"),
        ({"width": 0}, "width is not between"),
        ({"width": 16385}, "width is not between"),
        ({"width": -1}, "width is not a number"),
        ({"lanes": "0,x"}, "lanes is not a list"),
        ({"lanes": "0,999"}, "there is no lane 999"),
        ({"lanes": "-1"}, "lanes is not a list"),
        ({"to": ""}, "missing parameters: to"),
    ],
)
def test_what_cannot_be_shown_is_said(client: Client, wrong: dict[str, Any], message: str) -> None:
    asked = SPAN | {"from": 0, "to": 10**6, "width": 500, "lanes": "0"} | wrong
    response = client.get(f"{ROOT}/timeline_window", query_string=asked)
    assert response.status_code == 400
    assert message in error_of(response)["message"]


class TestOtherRoutes:
    def test_a_slice_that_the_window_shows_tells_all(self, client: Client) -> None:
        _, columns = ask(client, **{"from": 0, "to": 10**6, "width": 500, "lanes": "7"})
        asked = SPAN | {"lane": 7, "row": int(columns["row"][-1])}
        answer = client.get(f"{ROOT}/timeline_slice", query_string=asked).get_json()
        assert (answer["lane"], answer["start_ns"]) == (7, columns["start"][-1])
        assert answer["launch"]["start_ns"] < answer["start_ns"]
        alone = SPAN | {"row": asked["row"]}
        assert client.get(f"{ROOT}/timeline_slice", query_string=alone).get_json() == answer

    def test_a_search(self, client: Client) -> None:
        asked = SPAN | {"q": "compiled region: 0/0", "at": 5 * 10**6, "limit": 2}
        answer = client.get(f"{ROOT}/timeline_search", query_string=asked).get_json()
        assert (answer["count"], answer["position"], len(answer["hits"])) == (3, 1, 2)
        assert answer["hits"][0]["start_ns"] < asked["at"] < answer["hits"][1]["start_ns"]

    def test_a_range(self, client: Client, expected: Callable[[str], dict[str, Any]]) -> None:
        lanes = client.get(f"{ROOT}/timeline", query_string=SPAN).get_json()
        asked = SPAN | {"from": 0, "to": lanes["duration_ns"]}
        answer = client.get(f"{ROOT}/timeline_range", query_string=asked).get_json()
        (numbers,) = expected("breaks")["traces"].values()
        busy = answer["facts"][1]["value"]
        assert duration(numbers["busy_us"]) in busy and busy.endswith(f"{numbers['gpu_events']} kernels")

    def test_the_trace_itself(self, client: Client, recording: Recording) -> None:
        response = client.get(f"{ROOT}/trace_file", query_string=SPAN)
        path = next(recording("breaks").glob("*.pt.trace.json"))
        assert response.data == path.read_bytes()
        assert response.headers["Content-Disposition"] == f"attachment; filename={path.name}"
        assert response.content_length == path.stat().st_size

    def test_a_part_of_the_trace(self, client: Client) -> None:
        response = client.get(f"{ROOT}/timeline_trim", query_string=SPAN | {"from": 0, "to": 10**6})
        events = json.loads(gzip.decompress(response.data))["traceEvents"]
        assert {"ProfilerStep#2", "process_name"} <= {event["name"] for event in events}
        ours = [event for event in events if event["pid"] == "torch.compile"]
        assert len(events) - len(ours) == 271 and {event["ph"] for event in ours} == {"M", "X"}
        assert response.headers["Content-Disposition"].endswith(".part.json.gz")

    @pytest.mark.parametrize(
        ("route", "wrong"),
        [
            ("timeline_slice", {"lane": 8, "row": 10**8}),
            ("timeline_slice", {"lane": 99, "row": 0}),
            ("timeline_slice", {"lane": 8}),
            ("timeline_slice", {"row": 10**8}),
            ("timeline_search", {}),
            ("timeline_search", {"q": "x", "from": 1}),
            ("timeline_search", {"q": "x", "limit": "many"}),
            ("timeline_search", {"q": "x", "lanes": "99"}),
            ("timeline_range", {"from": 5, "to": 1}),
            ("timeline_range", {"from": 10**14, "to": 10**15}),
            ("timeline_trim", {"from": 5, "to": 1}),
            ("timeline_trim", {"from": 5}),
            ("trace_file", {"span": ""}),
        ],
    )
    def test_bad_requests_are_said(self, client: Client, route: str, wrong: dict[str, Any]) -> None:
        response = client.get(f"{ROOT}/{route}", query_string=SPAN | wrong)
        assert response.status_code == 400
        error_of(response)

    def test_a_file_that_is_gone_is_said(self, tmp_path: Path) -> None:
        path = write_trace(tmp_path, [slice_("a", 0, 1)], "w.1790000000000000000.pt.trace.json")
        opened = make_client(make_plugin(tmp_path))
        ids = {"run": ".", "worker": "w", "span": "1790000000000000000"}
        assert ask_span(opened, ids).status_code == 200
        path.unlink()
        for route in ("trace_file", "timeline_trim"):
            response = opened.get(f"{ROOT}/{route}", query_string=ids | {"from": 0, "to": 1000})
            assert response.status_code == 422
            assert "cannot be opened" in error_of(response)["message"]

    def test_a_span_that_there_is_not_has_no_file(self, client: Client) -> None:
        for route in ("trace_file", "timeline_trim", "timeline_window"):
            asked = SPAN | {"span": "7", "from": 0, "to": 1, "width": 1}
            assert client.get(f"{ROOT}/{route}", query_string=asked).status_code == 404


def test_the_timeline_does_not_wait_for_the_report_of_the_span(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slowly(profile: Profile) -> list[Gpu]:
        assert go.wait(60)
        return gpus(profile)

    monkeypatch.setattr(report, "gpus", slowly)
    client = make_client(make_plugin(recording("breaks")))
    try:
        wait_for(lambda: client.get(f"{ROOT}/timeline", query_string=SPAN).status_code == 200)
        response = client.get(f"{ROOT}/span", query_string=SPAN)
        assert response.status_code == 202
        assert response.get_json()["progress"]["bytes_read"] == response.get_json()["progress"]["bytes_total"]
    finally:
        go.set()
    assert ask_span(client, SPAN).status_code == 200
