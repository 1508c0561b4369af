"""Test that stacks written by torch 2.14's inductor_trace_handler are the lines of inductor's kernels."""

from pathlib import Path

import pytest

from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import launch, write_trace

OUTER = '  File "/home/user/train.py", line 40, in <module>\n    main()\n'
GELU = '  File "/home/user/model.py", line 12, in forward\n    x = gelu(x)\n'
ADD = '  File "/home/user/model.py", line 13, in forward\n    return x + y'


@pytest.mark.parametrize(
    ("stack", "lines"),
    [
        ([OUTER + GELU, OUTER + ADD], [(12, "x = gelu(x)"), (13, "return x + y")]),
        ([OUTER + GELU, OUTER + GELU], [(12, "x = gelu(x)")]),
        (OUTER + ADD, [(13, "return x + y")]),
        ([], []),
        ([None, 7, {"a": 1}], []),
        ("no stack", []),
    ],
)
def test_the_innermost_line_of_each_stack_with_its_source(
    tmp_path: Path, stack: object, lines: list[tuple[int, str]]
) -> None:
    events = [
        *launch("triton_poi_fused_gelu_0", 10, 20, 5, stack=stack),
        *launch("gemm", 30, 40, 5),
        *launch("triton_poi_fused_gelu_0", 50, 60, 5, stack=stack),
    ]
    profile = Profile(read_trace(str(write_trace(tmp_path, events)), workers=1), None, None)
    fused, gemm = kernel_table(profile).rows
    assert [(line.line, line.source) for line in fused.lines] == lines
    assert fused.lines_from == ("provenance" if lines else None)
    assert {line.file for line in fused.lines} <= {"/home/user/model.py"}
    assert gemm.lines == []
