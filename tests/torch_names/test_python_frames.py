"""Frames of Python as the profiler writes them: taken apart, and told whose they are."""

import pytest

from recordings import Recording
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from tb_torchcompile_plugin.torch_names.python_frames import (
    frame_of,
    is_user_function,
    module_of,
    resumed_from,
    runs_graph,
    without_address,
    wraps_module,
)
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

USERS = [
    "train.py(3): <module>",
    "train.py(3): <lambda>",
    "model.py(17): forward",
    "capture.py(26): torch_dynamo_resume_in_forward_at_26",
    *("src/models/resnet.py(41): forward", "/home/me/train.py(3): main"),
    *("home/me/model.py(17): forward", "/home/me/torch/train.py(3): main"),
    *("/home/me/torch/nn/model.py(3): forward", "/data/lib/model.py(3): forward"),
    *("test.py(53): main", "test/test_model.py(10): test_forward", "code/train.py(9): main"),
    *("types/box.py(9): area", "time.py(1): now", "C:\\Users\\me\\train.py(12): main"),
    "C:\\Users\\me\\Lib\\model.py(12): main",
    "/tmp/ipykernel_4711/1234567890.py(3): <module>",
    "C:\\Users\\me\\AppData\\Local\\Temp\\ipykernel_4711\\1234567890.py(3): train",
    "<ipython-input-3-0a1b2c3d4e5f>(1): <module>",
    "<python-input-0>(1): <module>",
    "<stdin>(1): <module>",
    "<doctest model.forward[0]>(1): <module>",
    "transformers/models/llama/modeling_llama.py(250): forward",  # installed or a copy: the name does not tell
]
NOT_THE_USERS = [
    "torch/nn/modules/module.py(1783): _call_impl",
    "torch\\nn\\modules\\module.py(1783): _call_impl",
    "torch/_dynamo/eval_frame.py(832): compile_wrapper",
    "torch/_functorch/_aot_autograd/subclass_codegen.py:codegen(backward_prologue)(1): _backward_prologue",
    "functorch/_src/vmap.py(9): vmap",
    "triton/runtime/jit.py(330): <lambda>",
    "/usr/lib/python3/dist-packages/torch/_ops.py(1079): __call__",
    "/venv/lib/python3.11/site-packages/torch/_ops.py(1079): __call__",
    "/home/me/project/.venv/lib/python3.12/site-packages/timm/layers/mlp.py(44): forward",
    ".venv/lib/python3.12/site-packages/timm/layers/mlp.py(44): forward",
    "C:\\Users\\me\\venv\\Lib\\site-packages\\timm\\layers\\mlp.py(44): forward",
    "/home/me/pytorch/torch/cuda/streams.py(9): wait",
    "/home/me/src/torch/_inductor/utils.py(3397): run",
    "/tmp/torchinductor_me/vd/cvdocykifmynkmmmuw7rgu22g4zgqu7kh3lmlzoghvd5acdygpmo.py(211): call",
    "/tmp/ind_breaks/73/c73f7n7zqyuqng6gt25wg7iz2ror3j6226q3s6eqt7zqy5ipgtdn.py(211): call",
    "C:\\Temp\\torchinductor_me\\tmp9x.py(3): call",
    "fx_generated_0a1b2c.py(4): forward",
    "<eval_with_key>.28(4): forward",
    "<string>(1): launcher",
    "<string>(2): __init__",
    "<frozen importlib._bootstrap>(1027): _find_and_load",
    *("<frozen os>(680): __getitem__", "<attrs generated init m.C>(3): __init__"),
    *("contextlib.py(132): __enter__", "typing.py(2154): cast"),
    *("concurrent/futures/thread.py(81): _worker", "logging/__init__.py(1720): getEffectiveLevel"),
    "json\\encoder.py(183): encode",
    "/usr/lib/python3.11/threading.py(1002): _bootstrap",
    "/usr/lib64/python3.9/threading.py(1002): _bootstrap",
    "C:\\Python311\\Lib\\threading.py(1002): _bootstrap",
    "C:\\Users\\me\\miniconda3\\envs\\t\\Lib\\threading.py(1002): _bootstrap",
    "tqdm/_monitor.py(69): run",
    "ipykernel_launcher.py(18): <module>",
    "IPython/core/interactiveshell.py(3577): run_code",
    "tb_torchcompile_plugin/writer/recorder.py(90): emit",
    "<built-in method _launch_kernel of PyCapsule object at 0x7f1d18286790>",
    *("<built-in function len>", "nn.Module: GPT_0", "aten::mm", "Python GC", "train.py", ""),
]


@pytest.mark.parametrize("name", USERS)
def test_the_users_own(name: str) -> None:
    assert is_user_function(name)


@pytest.mark.parametrize("name", NOT_THE_USERS)
def test_not_the_users(name: str) -> None:
    assert not is_user_function(name)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        (f"/tmp/torchinductor_user/dl/c{'dlzq4iglb' * 5}ugvdih.py(120): call", True),
        (f"D:\\cache\\ga\\c{'a' * 51}.py(7): call", True),
        (f"/tmp/torchinductor_user/dl/c{'a' * 51}.py(20): benchmark", False),
        ("train.py(12): call", False),
        ("call", False),
    ],
)
def test_what_runs_a_graph(name: str, runs: bool) -> None:
    assert runs_graph(name) == runs


@pytest.mark.parametrize("program", ["breaks", "everything"])
def test_in_recordings_only_the_program_is_the_users(recording: Recording, program: str) -> None:
    (file,) = recording(program).glob("*.pt.trace.json")
    trace = read_trace(str(file))
    code = trace.cats.index(PYTHON_FUNCTION)
    names = {trace.names[name] for name in trace.name[trace.cat == code].tolist()}
    frames = [frame for name in names if is_user_function(name) and (frame := frame_of(name))]
    assert {frame.file for frame in frames} == {"capture.py" if program == "breaks" else "program.py"}
    assert {"forward", "<module>"} <= {frame.function for frame in frames}


def test_a_frame_in_parts() -> None:
    assert frame_of("a b/model(2).py(17): <lambda>") == ("a b/model(2).py", 17, "<lambda>", "")
    assert frame_of("<eval_with_key>.28(4): forward") == ("<eval_with_key>.28", 4, "forward", "")
    assert frame_of("nn.Module: Net_0") is None and frame_of("<built-in function len>") is None


def test_what_goes_on_after_a_graph_break() -> None:
    assert resumed_from("torch_dynamo_resume_in_forward_at_26") == ("forward", 26)
    name = "<graph break in forward>"
    assert resumed_from(f"torch_dynamo_resume_in_{name}_at_26") == (name, 26)
    assert resumed_from("forward") is None


def test_modules() -> None:
    assert module_of("nn.Module: Linear_3") == "Linear_3" and module_of("model.py(1): f") is None
    assert wraps_module("OptimizedModule_0") and not wraps_module("Linear_0")


def test_addresses_differ_from_run_to_run() -> None:
    name = "<built-in method to of Tensor object>"
    assert without_address(name.replace(">", " at 0x7f>")) == name
