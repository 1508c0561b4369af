"""All fields of torch's compilation metrics, known or not."""

import dataclasses
import json

import pytest

from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.compilation_details import metrics
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileKey, CompileSummary
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
from tb_torchcompile_plugin.torch_names.records import CONFIG_FIELDS

KINDS = ("compilation_metrics", "bwd_compilation_metrics")


@pytest.mark.parametrize("program", ["breaks", "recompiles", "ddp"])
def test_every_field_that_torch_wrote_is_there(recording: Recording, program: str) -> None:
    """The log's own JSON is the reference: all of its fields but nulls, and the settings, which are texts."""
    for log in recording(program).glob("*.log"):
        summary = read_log(str(log))
        seen = 0
        for line in log.read_text().splitlines():
            envelope = json.loads(line[line.index("] {") + 2 :]) if line.startswith("V") else {}
            for kind in {*KINDS, *(f"{kind}_runtime" for kind in KINDS)} & set(envelope):
                recorded = {
                    k: v for k, v in envelope[kind].items() if v is not None and k not in CONFIG_FIELDS
                }
                rows = metrics(data_of(summary), 0, recorded["compile_id"])
                runtime = kind.endswith("_runtime")
                direction = "backward" if kind.startswith("bwd") else "forward"
                mine = [row for row in rows if (row.runtime, row.direction) == (runtime, direction)]
                assert {(name, json.dumps(value)) for name, value in recorded.items()} <= {
                    (row.name, row.value) for row in mine
                }
                assert len({(row.record, row.name) for row in mine}) == len(mine)
                assert all(row.is_known for row in mine)
                seen += 1
        assert seen >= len(summary.compilations)


def test_a_field_that_is_new_is_shown_as_such() -> None:
    row = Compilation(key=CompileKey(compile_id="0/0"), metrics={"guard_count": "3", "flux": '"<b>"'})
    known, new = metrics(data_of(CompileSummary(compilations=[row])), 0, "0/0")
    assert (known.group, known.name, known.is_known) == ("guards", "guard_count", True)
    assert (new.group, new.name, new.value, new.is_known) == ("other", "flux", '"<b>"', False)


@pytest.mark.torch
def test_the_fields_of_this_torch_are_known() -> None:
    utils = pytest.importorskip("torch._dynamo.utils")
    names = [field.name for field in dataclasses.fields(utils.CompilationMetrics)]
    row = Compilation(key=CompileKey(compile_id="0/0"), metrics=dict.fromkeys(names, "1"))
    unknown = [
        metric.name
        for metric in metrics(data_of(CompileSummary(compilations=[row])), 0, "0/0")
        if not metric.is_known
    ]
    assert unknown == []
