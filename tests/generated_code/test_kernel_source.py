"""What an output code says of its kernels, and the user's lines that they compute."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_torchcompile_plugin.generated_code.output_code import Frame, parse_calls, parse_definitions
from tb_torchcompile_plugin.generated_code.user_lines import lines_of, node_lines, provenance

# As torch 2.11 writes it, cut down to two kernels.
CODE = """\
# AOT ID: ['0_forward']
async_compile = AsyncCompile()


# kernel path: /tmp/ind/qy/cqy7z.py
# Unsorted Source Nodes: [], Original ATen: []
# Source node to ATen node mapping:
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
import triton

@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0):
    text = "a\\\\nb"
''', device_str='cuda')


# kernel path: /tmp/ind/r7/cr7zu.py
# Topologically Sorted Source Nodes: [input_1, input_2], Original ATen: [aten.addmm, aten.relu]
# Source node to ATen node mapping:
#   input_1 => add_tensor_1
# Graph fragment:
#   %primals_2 : Tensor "f32[128][1]cuda:0" = PlaceHolder[target=primals_2]
#   %add_tensor_1 : Tensor "f32[128]"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = ())
#   %relu : [num_users=2] = call_function[target=torch.ops.aten.relu.default](args = (%add_tensor_1,), kwargs = {})
#   return %relu
triton_poi_fused_addmm_relu_1 = async_compile.triton('triton_poi_fused_addmm_relu_1', '''
inductor_meta={'kernel_name': 'triton_poi_fused_addmm_relu_1', 'kernel_num_gb': 7.5264e-05, 'kernel_flop': 0},
def get_args():
def call(args):
def benchmark_all_configs(args):
''', device_str='cuda')


# Original path: /home/user/train.py:108
my_kernel_0 = async_compile.triton('my_kernel', '''
def my_kernel(x): pass
''', device_str='cuda')
cpp_fused_add_2 = async_compile.cpp_pybinding(['const float*'], '''
extern "C" void kernel()
''')
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_fused_0])

async_compile.wait(globals())

class Runner:
    def call(self, args):
        with torch.cuda._DeviceGuard(0):
            # Topologically Sorted Source Nodes: [x], Original ATen: [aten.convolution]
            triton_poi_fused_0.run(primals_1, buf0, 192, 49, stream=stream0)
            buf18 = extern_kernels.convolution(buf1, buf0, stride=(2, 2))
            # Topologically Sorted Source Nodes: [permute, mm_1], Original ATen: [aten.t, aten.mm]
            extern_kernels.mm(reinterpret_tensor(buf18, (10, 64), (1, 10), 0), mean, out=buf19)
            buf20 = torch.ops.aten.convolution_backward.default(buf19, primals_1)
        return (buf20, )
"""


def test_each_kernel_of_an_output_code_has_its_source_and_what_was_fused() -> None:
    by_name = parse_definitions(CODE)
    names = "triton_poi_fused_0 triton_poi_fused_addmm_relu_1 my_kernel cpp_fused_add_2 multi_kernel_0"
    assert list(by_name) == names.split()
    layout, relu, mine, cpp, _ = by_name.values()
    assert layout.source.startswith("import triton\n") and 'text = "a\\nb"' in layout.source
    assert (layout.aten_ops, layout.nodes, layout.num_gb) == ([], [], None)
    assert relu.aten_ops == ["aten.addmm", "aten.relu"] and relu.source_nodes == ["input_1", "input_2"]
    assert relu.nodes == ["add_tensor_1", "relu"], "inputs are computed elsewhere"
    assert (relu.num_gb, relu.flop) == (7.5264e-05, 0)
    assert CODE.splitlines()[relu.line - 1].startswith("triton_poi_fused_addmm_relu_1 =")
    assert mine.path == ("/home/user/train.py", 108)
    assert (cpp.language, cpp.source) == ("cpp_pybinding", 'extern "C" void kernel()\n')


def test_calls_of_libraries_carry_their_nodes_and_buffers() -> None:
    rows = parse_calls(CODE)
    assert [call.operator for call in rows] == [
        *(None, "aten::convolution", "aten::mm", "aten::convolution_backward")
    ]
    assert rows[0].kernel == "triton_poi_fused_0" and rows[0].buffers == {"buf0"}
    assert rows[1].source_nodes == ["x"] and "buf0" in rows[1].buffers
    assert rows[2].source_nodes == ["permute", "mm_1"]


GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[64, 3]"):
        # File: /home/user/train.py:27 in forward, code: x = self.up(x)
        addmm: "f32[5, 64][64, 1]cuda:0" = torch.ops.aten.addmm.default(primals_1)
        var_mean = torch.ops.aten.var_mean.correction(addmm, [0])

        # No stacktrace found for following nodes
        mystery: "f32[5]" = torch.ops.aten.relu.default(addmm)
"""


def test_a_printed_graph_tells_the_line_of_each_node() -> None:
    places = node_lines(GRAPH)
    line = Frame("/home/user/train.py", 27, "forward", "x = self.up(x)")
    assert places == {"addmm": line, "var_mean": line}
    assert lines_of(["var_mean", "mystery", "addmm"], places) == [line]


def test_provenance_records_give_the_innermost_line_of_each_stack() -> None:
    stack = '  File "/a.py", line 3, in main\n    f(x)\n  File "/b.py", line 7, in f\n    return x + 1\n'
    recorded = {"triton_poi_fused_add_0:1": [stack, stack], "extern_kernels.mm:2": ["nothing"]}
    assert provenance(json.dumps(recorded)) == {
        "triton_poi_fused_add_0": [Frame("/b.py", 7, "f", "return x + 1")]
    }


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 3}', '{"a": null}'])
def test_what_is_no_provenance_record_tells_nothing(text: str) -> None:
    assert provenance(text) == {}


@given(st.text(alphabet="#'\n=()%: atxyz_.", max_size=300))
def test_no_text_stops_the_reading(noise: str) -> None:
    for text in (noise, CODE[: len(noise) * 7] + noise, f"a = async_compile.triton('a', '''{noise}"):
        assert isinstance(parse_definitions(text), dict) and isinstance(parse_calls(text), list)
        assert isinstance(node_lines(text), dict)
