"""What Triton made of kernels, as torch's autotuners and Triton's cache folder hold it (torch 2.11's shapes)."""

import json
import logging
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tb_torchcompile_plugin.compile_log.summary import payload_text
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, GeneratedKernel, Graph
from tb_torchcompile_plugin.torch_names.records import TUNING_LOGGER
from tb_torchcompile_plugin.writer.triton_files import TritonFiles

FILE, NAME = "/tmp/torchinductor_user/ab/cab.py", "triton_per_fused_sum_0"
DIGEST = "d67e5f1dc8a45b467c50c554b15c25cff769c2cc39bae53d8fbbba0bda7f1a4d"
FOLDER = "2Z7F6HOIURNUM7CQYVKLCXBFZ73WTQWMHG5OKPMPXO5AXWT7DJGQ"  # the same in base 32, as Triton names it


class Config(SimpleNamespace):
    def __str__(self) -> str:
        sizes = ", ".join(f"{name}: {value}" for name, value in self.kwargs.items())
        return f"{sizes}, num_warps: 4, num_ctas: 1, num_stages: 1, maxnreg: None"


class CachingAutotuner:
    def __init__(self, results: list[SimpleNamespace], in_use: int) -> None:
        self.compile_results = results
        self.launchers = [SimpleNamespace(config=results[in_use].config)]


def result(block: int, digest: str, registers: int) -> SimpleNamespace:
    config = Config(kwargs={"XBLOCK": block}, num_warps=4, num_stages=1)
    kernel = SimpleNamespace(hash=digest, n_regs=registers, n_spills=0, shared=16)
    return SimpleNamespace(config=config, kernel=kernel)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TritonFiles:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{NAME}.ptx").write_text(".version 8.7")
    (folder / f"{NAME}.ttir").write_text("module {}")
    (folder / f"{NAME}.cubin").write_bytes(b"\x7fELF")
    (folder / f"{NAME}.json").write_text(
        json.dumps({"num_warps": 4, "num_stages": 1, "shared": 16, "target": {"backend": "cuda", "arch": 90}})
    )
    (folder / f"__grp__{NAME}.json").write_text("{}")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    generated = ModuleType("cab")
    generated.__file__ = FILE
    vars(generated)[NAME] = CachingAutotuner([result(1, DIGEST, 23), result(8, "ff" * 32, 68)], 0)
    codecache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=[generated]))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", codecache)  # type: ignore[arg-type]
    algorithms = SimpleNamespace(savers=[])
    algorithms.add_feedback_saver = algorithms.savers.append
    monkeypatch.setitem(sys.modules, "torch._inductor.select_algorithm", algorithms)  # type: ignore[arg-type]
    return TritonFiles(lambda _problem: nullcontext()).started()


@pytest.fixture(autouse=True)
def _as_it_was() -> object:
    logger = logging.getLogger(TUNING_LOGGER)
    yield
    logger.filters.clear()
    logger.setLevel(logging.NOTSET)


def summary_with(files: TritonFiles, *, texts: bool = True) -> CompileSummary:
    graph = Graph(
        key=CompileKey(compile_id="0/0"), output_code_file=FILE, kernels=[GeneratedKernel(name=NAME)]
    )
    summary = CompileSummary(graphs=[graph])
    files.put(summary, texts=texts)
    return summary


def test_registers_of_all_configurations_and_the_texts_of_the_one_in_use(files: TritonFiles) -> None:
    summary = summary_with(files)
    rows = [
        (row.config, row.registers, row.chosen, row.cache_key == FOLDER) for row in summary.compiled_kernels
    ]
    assert rows == [
        ("XBLOCK=1, num_warps=4, num_stages=1", 23, True, True),
        ("XBLOCK=8, num_warps=4, num_stages=1", 68, False, False),
    ]
    assert summary.compiled_kernels[0].target == "cuda 90"
    texts = {one.name: payload_text(summary, one.payload) for one in summary.artifacts}
    assert texts == {f"triton_ptx_{NAME}": ".version 8.7", f"triton_ttir_{NAME}": "module {}"}
    assert not summary_with(files, texts=False).artifacts


def test_times_are_recorded_and_not_logged(files: TritonFiles, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger(TUNING_LOGGER)
    log.debug("Benchmark all input configs for %s, get:", NAME)
    unset = "num_ctas: 1, num_stages: 1, maxnreg: None"
    log.debug(f"XBLOCK: 1, num_warps: 4, {unset}: 0.142304, nreg 23, nspill 0, #shared-mem 16")
    log.warning("heard by all")
    assert caplog.messages == ["heard by all"]
    times = [row.time_us if row.HasField("time_us") else None for row in summary_with(files).compiled_kernels]
    assert times == [142.304, None]


def test_failures_are_not_raised_into_autotuning(files: TritonFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []

    def reporting(problem: str) -> suppress:
        problems.append(problem)
        return suppress(Exception)

    monkeypatch.setattr(files, "_reporting", reporting)
    logging.getLogger(TUNING_LOGGER).debug("%d configs", "many")
    assert problems == ["results of autotuning cannot be read"]


def test_a_file_that_is_being_written_is_left_out(files: TritonFiles, tmp_path: Path) -> None:
    (tmp_path / FOLDER / f"{NAME}.json").write_text('{"num_warps": 4, "tar')
    assert [row.target for row in summary_with(files).compiled_kernels] == ["", ""]


def test_the_templates_of_an_operator(files: TritonFiles) -> None:
    (saver,) = sys.modules["torch._inductor.select_algorithm"].savers  # type: ignore[attr-defined]
    fast, slow, broken = (SimpleNamespace(name=f"triton_mm_{n}", description="BLOCK_M=64") for n in range(3))
    timings = {_Hashable(fast): 0.02, _Hashable(slow): 0.05, _Hashable(broken): float("inf")}
    inputs = [SimpleNamespace(get_size=lambda sizes=sizes: sizes) for sizes in ([64, 32], ["s0", 8])]
    saver(timings, "mm", inputs, list(timings), dict)
    saver({_Hashable(fast): 0.02, _Hashable(slow): 0.02}, "bmm", [], [], dict)
    rows = [row for row in summary_with(files).compiled_kernels if row.name == "mm (64x32, s0x8)"]
    values = [(row.config, row.time_us, row.chosen) for row in rows]
    assert values == [("triton_mm_0: BLOCK_M=64", 20.0, True), ("triton_mm_1: BLOCK_M=64", 50.0, False)]
    as_fast = [row.chosen for row in summary_with(files).compiled_kernels if row.name == "bmm"]
    assert as_fast == [True, False], "one is taken where two are as fast"


class _Hashable:
    def __init__(self, choice: SimpleNamespace) -> None:
        self.name, self.description = choice.name, choice.description
