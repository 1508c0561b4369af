"""recompiles.py and guard_reasons.py: torch's prose taken apart."""

import pytest

from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.recompiles import failed_guard, recompiles
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log


@pytest.mark.parametrize(
    ("reason", "kind", "source", "old", "new", "advice"),
    [
        (
            "4/0: tensor 'i' size mismatch at index 1. expected 256, actual 192",
            *("tensor_size", "i", "256", "192", "mark_dynamic(i, 1)"),
        ),
        (
            "tensor 'x' dtype mismatch. expected Float, actual Double",
            *("tensor_property", "x", "Float", "Double", "one dtype"),
        ),
        (
            "0/1: tensor 'self._modules['up']._parameters['bias']' size mismatch at index 0. expected 64, actual 128. "
            "Guard failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False",
            *("tensor_size", "self._modules['up']._parameters['bias']", "64", "128", "is expected"),
        ),
        (
            "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            *("tensor_property", "x", "requires_grad=0", None, "one dtype"),
        ),
        (
            "0/7: self.layer_idx == 7     # return x / (self.layer_idx + 1)  # /u/train.py:9 in forward",
            *("value", "self.layer_idx", "7", None, "does not fit"),
        ),
        (
            "0/0: s == 0.0      # return x * s  # /u/train.py:78 in g",
            *("value", "s", "0.0", None, "Pass it as a tensor"),
        ),
        ("0/0: L['n'] == 3", "value", "L['n']", "3", None, "allow_unspec_int_on_nn_module"),
        ("0/0: L['mode'] == 'train'", "value", "L['mode']", "'train'", None, "constant"),
        ("0/1: GLOBAL_STATE changed: grad_mode", "global_state", "grad_mode", None, None, "set_stance"),
        (
            "0/1: ___check_type_id(s, 10720960), type=<class 'float'>      # x  # u/t.py:78 in g",
            *("type", "s", "float", None, "The type of s changed"),
        ),
        (
            "0/0: ___check_obj_id(L['self'], 140), type=<class 'M'>",
            *("identity", "L['self']", None, None, "Create it once"),
        ),
        ("0/0: len(L['xs']) == 2", "length", "L['xs']", "2", None, "number of elements"),
        ("0/1: len(self._modules) != 2", "length", "self._modules", "2", None, "number of elements"),
        ("0/0: 2 <= L['x'].size()[0]", "shape", "L['x'].size()[0]", None, None, "range"),
        ("something torch has not said yet", "other", None, None, None, "TORCH_LOGS"),
    ],
)
def test_a_reason_is_taken_apart(reason, kind, source, old, new, advice):
    guard = failed_guard(reason)
    assert (guard.kind, guard.source, guard.old, guard.new) == (kind, source, old, new)
    assert advice in guard.advice


def test_the_users_line_is_found_and_the_whole_path_preferred():
    short = "0/0: s == 0.0     # return x  # ome/user/train.py:78 in g"
    stack = '\nUser stack trace:\n  File "/home/user/train.py", line 78, in g\n    return x'
    assert (failed_guard(short).file, failed_guard(short).line) == ("ome/user/train.py", 78)
    assert (failed_guard(short + stack).file, failed_guard(short + stack).line) == ("/home/user/train.py", 78)


@pytest.mark.parametrize("reason", ["", "\n", "0/0: ", "tensor '", "#:1 in x", "0/0: {source} == {old}"])
def test_nonsense_is_text_of_no_kind(reason):
    assert failed_guard(reason).advice


def test_each_recompile_of_the_recording_names_its_guards(recording):
    rows = recompiles(data_of(read_log(str(next(recording("recompiles").glob("*.log"))))))
    assert [
        (row.compile_id, [(guard.entry, guard.kind, guard.source) for guard in row.guards]) for row in rows
    ] == [
        ("0/1", [("0/0", "value", "s")]),
        ("0/2", [("0/1", "global_state", "grad_mode"), ("0/0", "global_state", "grad_mode")]),
        ("0/3", [("0/2", "global_state", "grad_mode"), ("0/1", "type", "s"), ("0/0", "value", "s")]),
    ]
    assert rows[1].reasons[0].endswith("GLOBAL_STATE changed: grad_mode") and all(
        row.duration_s for row in rows
    )


def test_a_size_mismatch_has_its_old_and_new_value(recording):
    rows = recompiles(data_of(read_log(str(next(recording("ddp").glob("*rank_0*.log"))))))
    assert [(guard.old, guard.new) for row in rows for guard in row.guards] == [("256", "192")] * 2
