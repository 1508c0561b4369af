"""The configurations of kernels that are tuned when they first run, as in torch's autotuners."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, GeneratedKernel, Graph
from tb_torchcompile_plugin.writer.recover import add_autotune_choices

FILE = "/tmp/torchinductor_user/ab/cab.py"


class CachingAutotuner:
    def __init__(self, *blocks: int) -> None:
        configs = [SimpleNamespace(kwargs={"XBLOCK": block}, num_warps=4, num_stages=1) for block in blocks]
        self.launchers = [SimpleNamespace(config=config) for config in configs]


class DebugAutotuner(CachingAutotuner):
    pass


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    generated = ModuleType("cab")
    generated.__file__ = FILE
    codecache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=[ModuleType("other"), generated]))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", codecache)  # type: ignore[arg-type]
    return generated


def chosen_config(name: str, num_configs: int = 2, config: str = "", file: str = FILE) -> str:
    kernel = GeneratedKernel(name=name, num_configs=num_configs, config=config)
    summary = CompileSummary(graphs=[Graph(output_code_file=file, kernels=[kernel])])
    add_autotune_choices(summary)
    return str(summary.graphs[0].kernels[0].config)


def test_a_kernel_that_has_run_has_one_launcher_left(module: ModuleType) -> None:
    vars(module)["triton_poi_0"] = DebugAutotuner(128)
    assert chosen_config("triton_poi_0") == "XBLOCK=128, num_warps=4, num_stages=1"
    assert chosen_config("triton_poi_0", num_configs=1) == ""  # it had no choice
    assert chosen_config("triton_poi_0", config="XBLOCK=64") == "XBLOCK=64"  # torch told
    assert chosen_config("triton_poi_0", file="/elsewhere.py") == ""


def test_a_kernel_that_has_not_run_has_no_choice(module: ModuleType) -> None:
    vars(module)["triton_poi_0"] = CachingAutotuner(64, 128)
    vars(module)["triton_poi_1"] = "a future, or anything else"
    assert chosen_config("triton_poi_0") == "" == chosen_config("triton_poi_1")


def test_a_users_own_kernel_is_found_by_its_numbered_variable(module: ModuleType) -> None:
    vars(module)["my_kernel_0"] = CachingAutotuner(32)
    assert chosen_config("my_kernel") == "XBLOCK=32, num_warps=4, num_stages=1"
    vars(module)["my_kernel_1"] = CachingAutotuner(64)  # the same kernel twice, with other arguments
    assert chosen_config("my_kernel") == ""


def test_without_inductor_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.codecache", raising=False)
    assert chosen_config("triton_poi_0") == ""
