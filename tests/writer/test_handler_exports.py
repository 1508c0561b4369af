"""The handler with other writers of traces: inductor's handler of torch 2.14, and profilers that export later."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live import SUMMARY, TRACE, names, needs_torch, torch_before
from tb_torchcompile_plugin import tensorboard_trace_handler

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]
WHOLE = '{"traceEvents": []}'


@pytest.fixture
def inductor_trace_handler(torch: Any) -> Any:
    reason = "torch 2.14 and later have inductor_trace_handler"
    return pytest.importorskip("torch._inductor.profiler", reason=reason).inductor_trace_handler


class Monitor:
    """Stands for a profiler with torch's CUPTI monitor: it compresses whatever its name, here or later."""

    def __init__(self, deferred: bool, name: str) -> None:
        setattr(self, name, True)
        self.asked: list[str] = []
        self._deferred = deferred

    def export_chrome_trace(self, path: str, **kw: Any) -> None:
        self.asked.append(path)
        if not self._deferred:
            self.wait_for_exports()

    def wait_for_exports(self) -> None:
        for path in self.asked:
            name = path if path.endswith(".gz") else f"{path}.gz"
            Path(name).write_bytes(gzip.compress(WHOLE.encode()))


@pytest.mark.parametrize("deferred", [True, False])
@pytest.mark.parametrize("options", [{}, {"use_gzip": True}, {"use_python_export": True}])
def test_a_file_that_is_not_there_yet_is_neither_read_nor_renamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, deferred: bool, options: dict[str, Any], torch: Any
) -> None:
    if "use_python_export" in options and torch_before("2.13"):
        pytest.skip("torch 2.13 and later have use_python_export")
    prof = Monitor(deferred, "_use_cupti_monitor" if torch_before("2.15") else "_use_cuspy")
    tensorboard_trace_handler(str(tmp_path), "w", **options)(prof)
    assert caplog.text == ""
    assert len(names(tmp_path, TRACE + ".gz")) == (not deferred)
    prof.wait_for_exports()
    assert names(tmp_path, TRACE + ".gz") == names(tmp_path, SUMMARY)
    assert len(list(tmp_path.iterdir())) == 2


def profiled(torch: Any, on_ready: Callable[[Any], None]) -> None:
    compiled = torch.compile(lambda x: (x.sin() + 1).cos() @ x)
    with torch.profiler.profile(on_trace_ready=on_ready):
        compiled(torch.ones(16, 16))


def test_inductors_handler_first_in_the_same_chain(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, inductor_trace_handler: Any
) -> None:
    """A profiler saves its trace once: ours puts the summary next to the existing one."""
    theirs, ours = inductor_trace_handler(str(tmp_path), "w"), tensorboard_trace_handler(str(tmp_path), "w")

    def ready(prof: Any) -> None:
        theirs(prof)
        ours(prof)

    for _ in range(2):
        profiled(torch, ready)
    assert "the trace cannot be written" not in caplog.text
    assert len(names(tmp_path, TRACE)) == 2 and names(tmp_path, TRACE) == names(tmp_path, SUMMARY)
