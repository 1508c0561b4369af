"""Test kernels.py: the kernels of an output code with their calls, lines and times."""

from profiles import spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.runtime.kernels import code_kernels, kernel_table
from tb_torchcompile_plugin.generated_code.output_code import lines_of_calls, parse_definitions
from tb_torchcompile_plugin.reader.compile_data import read_payload

CODE = """
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
def triton_poi_fused_0(x): pass
''')
mine_1 = async_compile.triton('mine', ''' ''')
cpp_fused_1 = async_compile.cpp_pybinding(['float*'], r''' ''')
def call(args):
        triton_poi_fused_0.run(buf0, stream=stream0)
        cpp_fused_1(buf1)
        mine_1.run(buf2)
"""


def test_calls_are_found_by_what_the_code_calls_a_kernel() -> None:
    kernels, places, lines = parse_definitions(CODE), lines_of_calls(CODE), CODE.split("\n")
    assert [one.variable for one in kernels.values()] == ["triton_poi_fused_0", "mine_1", "cpp_fused_1"]
    called = [lines[number - 1].strip() for one in kernels.values() for number in places[one.variable]]
    assert called == ["triton_poi_fused_0.run(buf0, stream=stream0)", "mine_1.run(buf2)", "cpp_fused_1(buf1)"]


def test_the_kernels_of_a_code_have_the_times_of_their_rows(recording: Recording) -> None:
    """One name may stand in several codes: each has its own."""
    (profile,) = spans_in(recording("resnet18"))
    assert profile.data is not None
    ran = [row for row in profile.of(kernel_table).rows if row.code_line is not None]
    codes = {row.artifact for row in ran if row.artifact is not None}
    assert len(codes) > 1
    for code in codes:
        text = read_payload(profile.data, code).split("\n")
        rows = code_kernels(profile, code).rows
        assert sum(row.launches or 0 for row in rows) == sum(
            row.launches for row in ran if row.artifact == code
        )
        for row in rows:
            assert f"{row.name} = async_compile" in text[row.line - 1]
            assert row.calls and all(row.name in text[line - 1] for line in row.calls)
        alone = code_kernels(profile.data, code).rows
        assert [(row.name, row.launches, row.lines) for row in alone] == [
            (row.name, None, row.lines) for row in rows
        ]
    assert code_kernels(profile, 10_000).rows == []
