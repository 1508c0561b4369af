"""A logdir in which every name is one that a page, a terminal or a spreadsheet would obey."""

import re
from pathlib import Path
from typing import Any

from compile_records import a_compilation, artifact, line
from tb_torchcompile_plugin.compile_log.record import Record
from traces import launch, slice_, step, write_trace

MARKUP = '<img src=x onerror="top.obeyed=1"><b>bold</b>&lt;'
ANSI, RTL, NUL, SURROGATE, FORMULA = (
    "\x1b[31mred\x9b2J\7\b\v\f\r\x7f\x85",
    "\u202egnp.exe",
    "\0",
    "\ud800",
    "=1+1",
)
RTL += "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069"
HOSTILE = FORMULA + MARKUP + ANSI + RTL + NUL + SURROGATE
IN_UTF8 = FORMULA + MARKUP + ANSI + RTL + NUL
IN_A_PATH = (MARKUP + ANSI + RTL).replace("/", "|")
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def hostile_logdir(root: Path) -> Path:
    """One run with a trace and a log."""
    folder = root / f"run {IN_A_PATH}"
    write_trace(folder, _events(), f"w {IN_A_PATH}.1.pt.trace.json", **_header())
    log = b"".join(line(record) for record in _records())
    (folder / "dedicated_log_torch_trace_rank_0_a.log").write_bytes(log)
    return root


def _header() -> dict[str, Any]:
    return {
        "deviceProperties": [{"id": 0, "name": HOSTILE, "totalGlobalMem": 1, "numSms": 100}],
        "distributedInfo": {"backend": HOSTILE, "rank": 0, "world_size": 1},
        HOSTILE: HOSTILE,
    }


def _events() -> list[dict[str, Any]]:
    events = []
    odd: dict[str, Any] = {"Input Dims": [[4]], HOSTILE: HOSTILE}
    for number, begin in enumerate((0, 1000, 2000)):
        events += [step(number, begin, 1000), slice_(HOSTILE, begin + 1, 990, "user_annotation")]
        events += [slice_(f"train.py({number + 1}): {HOSTILE}", begin + 2, 980, "python_function")]
        events += [slice_(f"nn.Module: {HOSTILE}_0", begin + 3, 970, "python_function")]
        events += [
            slice_("Torch-Compiled Region: 0/0", begin + 5, 900),
            slice_("CompiledFunction", begin + 6, 800),
        ]
        events += [slice_(f"aten::{HOSTILE}", begin + 10, 100, **odd)]
        events += launch(f"triton_poi_fused_{HOSTILE}", begin + 20, begin + 100, 300, grid=[1, 1, 1])
        events += launch(HOSTILE, begin + 30, begin + 400, 100)
    for what in ("process_name", "thread_name"):
        events.append({"ph": "M", "name": what, "pid": 100, "tid": 100, "args": {"name": HOSTILE}})
    return events


def _records() -> list[Record]:
    place = {"line": 9, "name": HOSTILE, "filename": 0, "loc": HOSTILE}
    metrics = {"compile_id": "0/0", "co_name": HOSTILE, "co_filename": f"/{HOSTILE}.py", "co_firstlineno": 3}
    failed = {**metrics, "compile_id": "1/0", "fail_type": HOSTILE, "fail_reason": HOSTILE, HOSTILE: HOSTILE}
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    return [
        Record({"str": [f"/{HOSTILE}.py", 0]}, None),
        *a_compilation("0/0"),
        Record({"dynamo_start": {"stack": [place]}, **ids}, None),
        Record({"compilation_metrics": metrics, **ids}, None),
        *a_compilation("1/0", 5000),
        Record({"compilation_metrics": failed, **ids, "frame_id": 1}, None),
        artifact(
            "dynamo_graph_break_reason", f"Graph break\nReason: {IN_UTF8}\nUser code traceback:\n  {IN_UTF8}"
        ),
        artifact("recompile_reasons", f'["{MARKUP}"]'.replace('"top.obeyed=1"', "top.obeyed=1"), "1/0"),
        artifact(HOSTILE, IN_UTF8),
    ]
