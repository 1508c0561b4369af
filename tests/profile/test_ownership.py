"""ownership.py and kernels.py: whose launch is it?"""

from profiles import graphs, profile_with
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import compiled_regions
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from traces import AUTOGRAD, MAIN, PID, launch, region, slice_

POINTWISE = "triton_poi_fused_add_0"


def graph(key, ts, dur, **kwargs):
    return slice_(f"## Call CompiledFxGraph {key} ##", ts, dur, **kwargs)


def sequenced(number, event):
    return event | {"args": {"Sequence number": number}}


BACKWARD = [
    sequenced(7, slice_("CompiledFunctionBackward", 100, 30, tid=AUTOGRAD)),
    *(graph("fk", 105, 20, tid=AUTOGRAD), *launch("b", 110, 200, 5, tid=AUTOGRAD)),
]


def analysed(folder, events, key_to_id=None):
    profile = profile_with(folder, events, graphs(key_to_id or {}))
    return kernel_table(profile).rows, compiled_regions(profile)


def owners(folder, events, key_to_id=None):
    return {(row.name, row.compile_id, row.graph_key) for row in analysed(folder, events, key_to_id)[0]}


def test_the_innermost_region_owns_the_launch(tmp_path):
    events = [region("0/0", 0, 100), region("1/0", 50, 50), graph("fa", 5, 20), graph("fb", 60, 30)]
    for name, at, start in (("a", 10, 200), ("b", 70, 210), ("c", 40, 220), ("d", 150, 230)):
        events += launch(name, at, start, 5)
    values = owners(tmp_path, events)
    assert values == {("a", "0/0", "fa"), ("b", "1/0", "fb"), ("c", "0/0", None), ("d", None, None)}


def test_backward_belongs_to_the_forward_with_its_sequence_number(tmp_path):
    events = [region("2/1", 0, 50), sequenced(7, slice_("CompiledFunction", 10, 20))]
    assert owners(tmp_path, [*events, *BACKWARD], {"fk": "9/9"}) == {("b", "2/1", "fk")}


def test_two_forward_threads_may_count_to_the_same_number(tmp_path):
    """Sequence numbers count per thread: only the profiler's arrow tells whose backward it is."""
    events = [region("0/0", 0, 50), sequenced(5, slice_("CompiledFunction", 5, 30))]
    events += [region("1/0", 0, 60, tid=77), sequenced(5, slice_("CompiledFunction", 10, 30, tid=77))]
    events += [sequenced(5, slice_("CompiledFunctionBackward", 100, 50, tid=AUTOGRAD))]
    events += launch("k", 110, 120, 10, tid=AUTOGRAD)
    assert owners(tmp_path, events) == {("k", None, None)}
    arrow = {"id": 9, "pid": PID, "cat": "fwdbwd", "name": "fwdbwd"}
    tail = {"ph": "s", "tid": MAIN, "ts": 5, **arrow}
    head = {"ph": "f", "tid": AUTOGRAD, "ts": 100, "bp": "e", **arrow}
    assert owners(tmp_path, [*events, tail, head]) == {("k", "0/0", None)}


def test_a_backward_without_a_number_is_not_guessed(tmp_path):
    events = [region("0/0", 0, 50), slice_("CompiledFunction", 5, 30)]
    events.append(slice_("CompiledFunctionBackward", 100, 50, tid=AUTOGRAD))
    events += launch("k", 110, 120, 10, tid=AUTOGRAD)
    assert owners(tmp_path, events) == {("k", None, None)}


def test_a_forward_outside_the_trace_leaves_the_graph_key(tmp_path):
    """The key tells only where it belongs to one compilation; otherwise the owner is unknown, not guessed."""
    assert owners(tmp_path, BACKWARD, {"fk": "3/0"}) == {("b", "3/0", "fk")}
    assert owners(tmp_path, BACKWARD, {}) == {("b", None, "fk")}


def test_launches_while_compiling_belong_to_what_is_compiled(tmp_path):
    said = "entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=4/2"
    events = [
        slice_("_compile.compile_inner (dynamo_timed)", 0, 100),
        slice_(said, 1, 0.1, "user_annotation"),
    ]
    events += [*launch("bench", 50, 60, 5), *launch("after", 150, 160, 5)]
    assert owners(tmp_path, events) == {("bench", "4/2", None), ("after", None, None)}


def test_a_kernel_without_launch_is_there_without_owner(tmp_path):
    (call, gpu) = launch(POINTWISE, 10, 20, 5)
    events = [region("0/0", 0, 100), gpu]
    assert call["cat"] == "cuda_driver" and owners(tmp_path, events) == {(POINTWISE, None, None)}


def test_the_external_id_tells_where_the_correlation_does_not(tmp_path):
    (_, gpu) = launch(POINTWISE, 10, 20, 5)
    gpu["args"]["External id"] = 33
    events = [region("0/0", 0, 100), slice_("x", 5, 10) | {"args": {"External id": 33}}, gpu]
    assert owners(tmp_path, events) == {(POINTWISE, "0/0", None)}


def test_a_graph_launch_gives_all_its_kernels_one_owner(tmp_path):
    (call, first) = launch("a", 10, 20, 5)
    second = {**first, "name": "b", "ts": 30}
    call["name"] = "cudaGraphLaunch"
    assert owners(tmp_path, [region("0/0", 0, 15), call, first, second]) == {
        ("a", "0/0", None),
        ("b", "0/0", None),
    }


def test_a_users_own_triton_kernel_is_known_by_its_launch(tmp_path):
    events = [slice_("my_add_kernel_0", 5, 20), *launch("my_add_kernel", 10, 50, 5)]
    events += [slice_("triton_mine_3", 105, 20), *launch("triton_mine", 110, 150, 5)]
    events += [slice_("triton_other_thing", 205, 20), *launch("triton_other_thing", 210, 250, 5)]
    events += launch("eager_kernel", 310, 350, 5)
    events += launch("void (anonymous namespace)::softmax<int>", 410, 450, 5)
    rows, _ = analysed(tmp_path, events)
    assert {row.name: row.category for row in rows} == {
        "my_add_kernel": "triton_user",
        "triton_mine": "triton_user",
        "triton_other_thing": "triton_other",
        "eager_kernel": "triton_user",
        "void (anonymous namespace)::softmax<int>": "other",
    }


def test_a_users_kernel_may_be_called_like_a_librarys(tmp_path):
    events = [slice_("flash_attn_kernel_0", 5, 20), *launch("flash_attn_kernel", 10, 50, 5)]
    assert [row.category for row in analysed(tmp_path, events)[0]] == ["triton_user"]


def test_a_kernel_has_one_category_with_and_without_its_launch(tmp_path):
    (_, alone) = launch("mine", 0, 80, 5)
    rows, _ = analysed(tmp_path, [slice_("mine_0", 5, 20), *launch("mine", 10, 50, 5), alone])
    assert [(row.category, row.launches) for row in rows] == [("triton_user", 2)]


def test_cpu_kernels_are_rows_of_the_cpu(tmp_path):
    kernels = slice_("graph_0_cpp_fused_add_0", 10, 4), slice_("cpp_fused_mul_1", 20, 6)
    rows, _ = analysed(tmp_path, [region("0/0", 0, 100), *kernels])
    assert [(row.device, row.category, row.name, row.compile_id) for row in rows] == [
        ("cpu", "cpp", "cpp_fused_mul_1", "0/0"),
        ("cpu", "cpp", "graph_0_cpp_fused_add_0", "0/0"),
    ]


def test_regions_count_their_own_time_only(tmp_path):
    events = [region("0/0", 0, 100), region("1/0", 20, 30), region("0/0", 200, 10), *launch("a", 25, 60, 5)]
    _, rows = analysed(tmp_path, events)
    values = [(row.compile_id, row.calls, row.cpu_us, row.gpu_us) for row in rows]
    assert values == [("0/0", 2, 80, 0), ("1/0", 1, 30, 5)]


def test_a_region_that_crosses_the_end_of_the_one_around_it_keeps_its_launches(tmp_path):
    events = [region("0/0", 0, 100), region("1/0", 90, 30), *launch("a", 95, 200, 5)]
    assert owners(tmp_path, [*events, *launch("b", 110, 210, 5)]) == {("a", "1/0", None), ("b", "1/0", None)}
