"""reader/trace: what torch writes beside collectives, as columns; and what no column is made of moves no other one."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jobs import ALL_REDUCE, PG, launched, metadata_of
from kineto_helpers import named
from recordings import Recording
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace
from traces import slice_, write_trace

TEXTS = {
    "collective": "Collective name",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "dtype": "dtype",
    "comms_id": "Comms Id",
}
NUMBERS = {
    "collective_seq": "Seq",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "source_rank": "Src Rank",
    "destination_rank": "Dst Rank",
}
GROUP = PG("mesh_dp", (0, 2))


def written_of(trace: Trace, rows: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """By torch's names; without what is not there."""
    columns = {column: codes_of(trace, column, rows).tolist() for column in (*TEXTS, *NUMBERS)}
    return [
        {
            name: trace.texts[column][columns[column][at]]
            for column, name in TEXTS.items()
            if columns[column][at] >= 0
        }
        | {name: columns[column][at] for column, name in NUMBERS.items() if columns[column][at] >= 0}
        for at in range(len(rows))
    ]


def test_each_column_of_a_made_up_trace(tmp_path: Path) -> None:
    large = metadata_of("allreduce", GROUP, 1 << 33, "BFloat16", Seq=7, Comms_Id=2**64 - 3)
    send = metadata_of("send", GROUP, 5, Seq=0, Dst_Rank=2)
    recv = metadata_of("recv", GROUP, 5, Src_Rank=0)
    kernels = [
        launched(ALL_REDUCE, at, at + 50, 10, **args) for at, args in ((0, large), (100, send), (200, recv))
    ]
    params = slice_("record_param_comms", 0, 1, **large)
    events = [*(event for pair in kernels for event in pair), params, slice_("aten::mm", 5, 1)]
    trace = read_trace(str(write_trace(tmp_path, events)), workers=1)
    rows = np.concatenate((trace.select(cat="kernel"), named(trace, "record_param_comms")))
    kept = {*TEXTS.values(), *NUMBERS.values()}
    wanted = [
        {name: value for name, value in args.items() if name in kept} for args in (large, send, recv, large)
    ]
    for one in wanted:
        if "Comms Id" in one:
            one["Comms Id"] = str(one["Comms Id"])
    assert written_of(trace, rows) == wanted
    assert written_of(trace, np.array(named(trace, "aten::mm"))) == [{}]


def test_real_kernels_have_what_their_events_say(recording: Recording) -> None:
    for path in sorted(recording("ddp").glob("*.trace.json")):
        events = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("ph") == "X"]
        trace = read_trace(str(path), workers=1)
        rows = np.flatnonzero(codes_of(trace, "collective", np.arange(len(trace))) >= 0)
        names = ("Collective name", "In msg nelems", "Process Group Ranks")
        wanted = sorted(
            (one["ts"], *(one["args"][name] for name in names))
            for one in events
            if names[0] in one.get("args", {})
        )
        known = written_of(trace, rows)
        assert len(known) > 10 and wanted == sorted(
            (int(ns) / 1000, *(one[name] for name in names))
            for ns, one in zip(trace.ts[rows].tolist(), known)
        )


STRANGERS: list[dict[str, Any]] = [
    {"ph": "C", "name": "SM active", "pid": "GPU 0 Counters", "tid": 0, "ts": 3.5, "args": {"": 17.25}},
    {"ph": "C", "name": "DRAM", "pid": "GPU 0 Counters", "ts": 9_000_000, "args": {"": 1}},
    {"ph": "i", "name": "marker", "pid": 1, "tid": 1, "ts": 4, "s": "t"},
    {"ph": "N", "name": "object", "id": 1, "pid": 1, "tid": 1, "ts": 4},
]


def test_counters_and_phases_of_others_move_no_number(tmp_path: Path) -> None:
    """torch 2.14 writes counters under a pid that is a text."""
    events = [
        *launched(ALL_REDUCE, 0, 5_000, 10_000, **metadata_of("allreduce", GROUP)),
        slice_("aten::mm", 1, 2),
    ]
    plain = read_trace(str(write_trace(tmp_path, events)), workers=1)
    mixed = [STRANGERS[0], events[0], *STRANGERS[1:3], *events[1:], STRANGERS[3]]
    other = read_trace(str(write_trace(tmp_path / "with", mixed)), workers=1)
    assert (plain.names, plain.cats) == (other.names, other.cats)
    assert (plain.tracks, plain.texts) == (other.tracks, other.texts)
    assert plain.window() == other.window() and other.notices == plain.notices == []
    for name, values in plain.columns.items():
        if name != "event" and not name.startswith("chunk."):  # places in the file
            assert np.array_equal(values, other.columns[name]), name


def test_a_category_that_nobody_knows_is_a_slice_and_nothing_else(tmp_path: Path) -> None:
    known = launched(ALL_REDUCE, 0, 5_000, 10_000, **metadata_of("allreduce", GROUP))
    stranger = slice_("node", 6, 1, "graph_event_node", tid=7) | {"pid": "GPU 0 Graphs"}
    bare = {name: value for name, value in slice_("bare", 7, 1).items() if name != "args"}
    plain = read_trace(str(write_trace(tmp_path, known)), workers=1)
    other = read_trace(str(write_trace(tmp_path / "with", [stranger, *known, bare])), workers=1)
    assert len(other) == len(plain) + 2 and other.window() == plain.window()
    for trace in (plain, other):
        gpu = trace.select(cat="kernel")
        assert trace.launch_of()[gpu].tolist() == trace.select(cat="cuda_runtime").tolist()
        assert written_of(trace, gpu) == written_of(plain, plain.select(cat="kernel"))
