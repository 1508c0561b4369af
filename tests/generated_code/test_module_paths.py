"""module_paths.py: the modules of a compiled graph, by the names of its inputs."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_torchcompile_plugin.generated_code.user_lines import (
    Input,
    captured_modules,
    common_module,
    inputs,
    shapes,
    taken_primals,
)
from tb_torchcompile_plugin.torch_names.artifacts import state_path

HEAD = (
    'def forward(self, L_self_modules_a_modules_up_parameters_weight_: "f32[4, 2][2, 1]cuda:0", '
    'L_x_: "f32[8, 2][2, 1]", L_self_modules_b_buffers_mean_: "f32[2][1]"):'
)
GRAPH = f"""class GraphModule(torch.nn.Module):
    {HEAD}
        l_x_ = L_x_
        l_self_modules_a_modules_up_parameters_weight_ = L_self_modules_a_modules_up_parameters_weight_

        # File: /m.py:10 in forward, code: x = self.up(x)
        linear: "f32[8, 4]" = torch._C._nn.linear(l_x_, l_self_modules_a_modules_up_parameters_weight_);  l_x_ = None
        # File: /m.py:11 in forward, code: x = relu(x)
        relu: "f32[8, 4]" = torch.relu(linear);  l_self_modules_b_buffers_mean_ = None
        # File: /m.py:5 in outer, code: return x - self.b.mean
        sub: "f32[8, 4]" = relu - l_self_modules_b_buffers_mean_
        # File: /m.py:6 in outer, code: return x * 2
        mul: "f32[8, 4]" = sub * 2
"""
PATHS = st.lists(st.lists(st.sampled_from("ab0"), max_size=4).map(".".join), max_size=5)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("l_self_modules_layer1_modules_0_modules_conv1_parameters_weight_", "layer1.0.conv1"),
        ("L_fn_modules_0_modules_norm_buffers_running_mean_", "0.norm"),
        ("l_self_parameters_scale_", ""),
        ("l_critic_modules_head_parameters_bias_", "critic.head"),
        ("l_critic_parameters_bias_", "critic"),
        ("l_self_modules_my_block_parameters_w_", "my_block"),
        ("l_x_", None),
        ("primals_3", None),
    ],
)
def test_the_name_of_an_input_is_the_path_of_its_module(name: str, path: str | None) -> None:
    assert state_path(name) == path


def test_a_node_without_parameters_belongs_to_the_module_whose_forward_it_stands_in() -> None:
    """And what a line forgets after it was used is not what it takes."""
    assert captured_modules(GRAPH) == {"linear": "a.up", "relu": "a", "sub": "b", "mul": ""}


def test_a_later_graph_numbers_the_inputs_and_may_have_others() -> None:
    known = inputs(GRAPH)
    assert known == [Input("a.up", "f32[4, 2]"), Input(None, "f32[8, 2]"), Input("b", "f32[2]")]
    statement = ["mm = torch.ops.aten.mm.default(primals_1, primals_2)", "add = primals_3 + primals_9"]
    primals = shapes('def forward(self, primals_1: "f32[4, 2][1, 4]cuda:0", primals_3: "f32[7][1]"):')
    assert taken_primals(statement, known, primals) == ["a.up"]


@given(PATHS)
def test_what_modules_have_in_common_holds_all_of_them(paths: list[str]) -> None:
    shared = common_module(paths)
    assert all(f"{path}.".startswith(f"{shared}.") or not shared for path in paths)
    longer = {".".join(path.split(".")[: shared.count(".") + (2 if shared else 1)]) for path in paths}
    assert not paths or len(longer) > 1 or longer <= {shared, *chain(paths)}
