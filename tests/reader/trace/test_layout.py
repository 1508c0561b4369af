"""Events in the layout of torch's writer come out as any JSON decoder reads them, down to the last odd one."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kineto_helpers import as_json_alone, assert_same
from recordings import Recording
from tb_torchcompile_plugin.profile.columns import Int64s
from tb_torchcompile_plugin.reader.trace.events import Dictionaries
from tb_torchcompile_plugin.reader.trace.kineto import Trace, read_trace
from tb_torchcompile_plugin.reader.trace.layout import PADDING, EventBatch, Layout, thousandths, whole_numbers

PYTHON = (
    '"ph": "X", "cat": "python_function", "name": "train.py(7): step", "pid": 5, "tid": 5,\n'
    '    "ts": 4374058849649.606, "dur": 154.801,\n'
    '    "args": {\n      "Python parent id": 16, "Python id": 17, "Ev Idx": 793629\n    }'
)
OPERATOR = (
    '"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 6,\n'
    '    "ts": 4374058865609.002, "dur": 42.080,\n'
    '    "args": {\n      "External id": 2562,"Sequence number": 2153, "Fwd thread id": 1, '
    '"Record function id": 0, "Concrete Inputs": [""], "Input type": ["float"], '
    '"Input Strides": [[]], "Input Dims": [[64, 3]], "Ev Idx": 1\n    }'
)
LAUNCH = (
    '"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5,\n'
    '    "ts": 4374058865610.163, "dur": 6.163,\n'
    '    "args": {\n      "External id": 2562,      "cbid": 211, "correlation": 133798\n    }'
)
KERNEL = (
    '"ph": "X", "cat": "kernel", "name": "void gemm<4>(int)", "pid": 0, "tid": 7,\n'
    '    "ts": 4374058865620.976, "dur": 0.993,\n'
    '    "args": {\n      "External id": 2562,      "queued": 0, "device": 0, "context": 1,      "stream": 7, '
    '"correlation": 133798,      "registers per thread": 40,      "shared memory": 0,      "blocks per SM": 0.007576,'
    '      "grid": [1, 1, 1],      "block": [128, 1, 1],      "est. achieved occupancy %": 0\n    }'
)
MEMORY = (
    '"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n    "pid": 5, "tid": 5,\n'
    '    "ts": 4374058865622.717,\n'
    '    "args": {\n      "Total Reserved": 792723456, "Total Allocated": 206915072, "Bytes": -802816, "Device Id": 0, '
    '"Device Type": 1, "Addr": 139849970212352, "finished": false, "Ev Idx": 789599\n    }'
)
FLOW = (
    '"ph": "s", "id": 133798, "pid": 5, "tid": 5, "ts": 4374058865610.163,\n    "cat": "ac2g", "name": "ac2g"'
)
FLOW_END = FLOW.replace('"s"', '"f"') + ', "bp": "e"'
FORWARD, BACKWARD = (flow.replace("ac2g", "fwdbwd") for flow in (FLOW, FLOW_END))
EVENTS = (PYTHON, OPERATOR, LAUNCH, KERNEL, MEMORY, FLOW, FLOW_END, BACKWARD, FORWARD)

# By what stands in an event, what may stand there instead: valid or not, each may be odd.
INSTEAD = {
    "154.801": (
        *("-5.000", "0.-05", "12", "1.25", "1.0625", "00.500", "1e3", "NaN", '"7.000"'),
        *("9000000000000.000", "99999999999999999999.000"),
    ),
    "4374058849649.606": ("4374058849649", "-1.500", "1790857026000000.123", "null", "1,500"),
    '"Python parent id": 16': ('"Python parent id": null', '"Python parent id": "16"', '"x": 1'),
    ": 17,": (": 017,", ": 1.5,", ": -17,", ": 12345678901234567890,", ": 1e2,", ":17,"),
    '"Ev Idx": 793629': (
        *('"Ev Idx": 793629, "Python id": 99', '"Python module id": 90, "Ev Idx": 793629'),
        *('"Ev Idx": 793629, "nested": {"Python id": 3}', '"note": "a \\"Python id\\": 3 b", "Ev Idx": 1'),
    ),
    '"External id": 2562,': (
        *('"External id": "2562",', '"external id": 2562,', '"External id": 2562, "external id": 7,'),
    ),
    '"correlation": 133798': (
        *('"correlation": 133798, "correlation": 5', '"\\u0063orrelation": 133799'),
        *('"correlation": 133798, "correlation": -1', '"a\\"correlation": 133798'),
    ),
    '"Python id": 17': ('"Python id": 17, "Python id": null', '"a\\"Python id": 17'),
    '"Bytes": -802816': ('"Bytes": -802816, "Bytes": 0', '"Bytes": --5'),
    '"Sequence number": 2153': ('"Sequence number": 2153, "Sequence number": -1',),
    '"Input Dims": [[64, 3]], "Ev Idx": 1': ('"Input Dims": [[64, 3]], "Ev Idx": 1, "Input dims": [[9]]',),
    '"Ev Idx": 1': (
        *('"Ev Idx": 1234567', '"Ev Idx": 12345678', '"Ev Idx": 12345678901234567', '"Ev Idx": 01'),
        *('"Ev Idx":  1', '"Ev Idx": 1 ', '"Ev Idx": -1', '"Ev Idx": 1, "Ev Idx": 2', '"Ev": 1'),
        *('"Ev Idx": 1, "more": 2', '"a": "\\"Ev Idx": 1', '"Ev Idx": "1"', '"Ev Idx": [1'),
    ),
    '"tid": 5, "ts"': ('"tid": 55, "ts"', '"tid": 0, "ts"', '"tid": "5", "ts"', '"tid": 05, "ts"', '"ts"'),
    '"est. achieved occupancy %": 0': ('"est. achieved occupancy %": 1e300',),
    '"name": "fwdbwd"': (
        *('"name": "fwdbwd", "id": 3', '"name": "fwdbwd", "ts": 5.000', '"name": "fwdbwd", "ts": null'),
        *('"name": "fwdbwd", "pid": 77', '"name": "fwdbwd", "i\\u0064": 77'),
    ),
    '"stream": 7': ('"stream": "7"', '"stream": {"correlation": 3}'),
    '"Bytes": -802816, ': ("",),
    '"Total Reserved": 792723456': ('"Total Reserved": 7.5',),
    '"Input Dims"': ('"Input dims"',),
    '"name": "train.py(7): step"': ('"name": "quo"te"', '"name": ["a"]', '"name": "a", "dur": 5'),
    '"pid": 5, "tid": 5,': (
        *('"pid": "Spans", "tid": null,', '"pid": 5, "tid": 5, "args": {"Python id": 3},'),
        '"pid": 5, "tid": 5,,',
    ),
    "ac2g": ("other",),
    '"id": 133798': ('"id": "133798"',),
    "    }": ("    },", "    }}"),
    "\n    }": ('\n    }, "id": 3',),
    "\n": ("\r\n",),
}
ODD = [(usual, odd) for usual, instead in INSTEAD.items() for odd in instead]


# some events of each kind: what most of them have is looked for first in the next chunk
_CHUNK = 20_000
_HEAD = len('{"traceEvents": [')


def document(events: list[str]) -> bytes:
    return ('{"traceEvents": [\n  {\n    ' + "\n  },\n  {\n    ".join(events) + "\n  }\n]}").encode()


def read(path: Path, events: list[str]) -> Trace:
    path.write_bytes(document(events))
    return read_trace(str(path))


def assert_as_json(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    laid = read_trace(str(path), chunk_bytes=_CHUNK)
    with as_json_alone():
        assert_same(laid, read_trace(str(path), chunk_bytes=_CHUNK))


def laid(events: list[str]) -> tuple[EventBatch, Int64s, list[bytes]] | None:
    text = document(events)[_HEAD:]
    return Layout(Dictionaries()).read(text, len(text) - 3)


@pytest.mark.parametrize("event", EVENTS)
def test_every_kind_is_understood(event: str) -> None:
    answer = laid([event] * 3)
    assert answer is not None
    batch, _, texts = answer
    assert len(batch.codes) == 3
    assert texts == []


def test_what_comes_of_them(tmp_path: Path) -> None:
    trace = read(tmp_path / "t.json", list(EVENTS))
    by_name = {trace.names[code]: row for row, code in enumerate(trace.name)}
    kernel, operator, step = by_name["void gemm<4>(int)"], by_name["aten::mm"], by_name["train.py(7): step"]
    assert (trace.ts[step], trace.dur[step]) == (4374058849649_606, 154_801)
    assert (trace.external_id[operator], trace.sequence[operator]) == (2562, 2153)
    assert trace.texts["input_dims"] == ["[[64, 3]]"]
    assert (trace.correlation[kernel], trace.stream[kernel], trace.device[kernel]) == (133798, 7, 0)
    assert trace.columns["registers"].tolist() == [40]
    assert trace.columns["memory.memory_bytes"].tolist() == [-802816]
    assert trace.columns["memory.address"].tolist() == [139849970212352]
    assert trace.columns["flow.id"].tolist() == [133798] * 2
    assert trace.columns["flow.start"].tolist() == [False, True]
    assert trace.phases == {"X": 4, "i": 1, "s": 2, "f": 2}


@pytest.mark.parametrize(("usual", "odd"), ODD)
def test_what_is_odd_is_read_as_json(tmp_path: Path, usual: str, odd: str) -> None:
    """Each in one event of many, first, last and between: all others are still read by their layout."""
    changed = [event.replace(usual, odd) for event in EVENTS]
    assert changed != list(EVENTS)
    many = EVENTS * 20
    for events in ([*changed, *many, *changed, *many], [*many, *changed], changed):
        assert_as_json(tmp_path / "t.json", document(events))


@pytest.mark.parametrize(
    "between", ["\n  }\n", "\n  }, \n", "\n  }],\n", "\n  },,\n", "\n  },\n  7,\n", "\n  },\n\n"]
)
def test_what_stands_between_events(tmp_path: Path, between: str) -> None:
    text = document(list(EVENTS * 20)).decode()
    for at in (match.start() for match in list(re.finditer("\n  },\n", text))[::31]):
        assert_as_json(tmp_path / "t.json", (text[:at] + text[at:].replace("\n  },\n", between, 1)).encode())


@given(
    events=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=40),
    numbers=st.lists(st.integers(0, 10**17) | st.integers(0, 99), min_size=1, max_size=9),
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 3), st.text('0123456789.-"\\{}[],: \n\rXnul', max_size=4)),
        max_size=2,
    ),
)
def test_whatever_is_changed(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[str],
    numbers: list[int],
    changes: list[tuple[float, int, str]],
) -> None:
    """Other numbers, and a few characters anywhere that come, go or are others."""
    others = iter(numbers * 1000)
    text = document(
        [re.sub(r"(?<=id\": )\d+|(?<=Addr\": )\d+", lambda _: str(next(others)), e) for e in events]
    )
    for where, removed, added in changes:
        at = _HEAD + int(where * (len(text) - _HEAD))
        text = text[:at] + added.encode() + text[at + removed :]
    assert_as_json(tmp_path_factory.mktemp("t") / "t.json", text)


@given(
    texts=st.lists(
        st.from_regex(r"-?[0-9]{0,17}(\.[0-9-]{0,4})?[,e }]?", fullmatch=True) | st.text(max_size=9),
        min_size=1,
    )
)
def test_numbers_are_what_their_text_says(texts: list[str]) -> None:
    data = [text.encode() for text in texts]
    at = np.cumsum([0, *(len(text) + 1 for text in data[:-1])])
    joined = b"\n".join([*data, b""]) + PADDING
    for read_numbers, pattern in (
        (whole_numbers, rb"(0|[1-9]\d{0,14})(?!\d)"),
        (thousandths, rb"((?:0|[1-9]\d{0,14})\.\d{3})"),
    ):
        values, ends, sound = read_numbers(joined, at)
        for row, text in enumerate(data):
            match = re.match(pattern, text)
            assert bool(sound[row]) == bool(match), text
            if match:
                assert values[row] == int(match.group(1).replace(b".", b"")), text
                assert ends[row] == at[row] + match.end(1)


@pytest.mark.parametrize(
    "name", ["breaks", "resnet18", "resnet18_eager", "resnet18_compile", "ddp", "recompiles"]
)
def test_recordings_have_this_layout(
    recording: Recording, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing is gained by it; and what comes of it is what the JSON decoder finds."""
    path = next(recording(name).rglob("*.pt.trace.json"))
    understood = []
    read_laid = Layout.read

    def read_and_count(
        layout: Layout, text: bytes, end: int
    ) -> tuple[EventBatch, Int64s, list[bytes]] | None:
        answer = read_laid(layout, text, end)
        understood.append(len(answer[0].codes) - len(answer[1]) if answer else 0)
        return answer

    monkeypatch.setattr(Layout, "read", read_and_count)
    whole = read_trace(str(path), workers=1)
    monkeypatch.undo()
    assert sum(understood) > 0.8 * whole.events
    with as_json_alone():
        assert_same(whole, read_trace(str(path), workers=1))
