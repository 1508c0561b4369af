"""torch's own times of functions: kept across its reset, and not called complete where some may be lost."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, Environment
from tb_torchcompile_plugin.writer.environment import Times, _fill_settings


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    module = SimpleNamespace(compilation_time_metrics=times)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)  # type: ignore[arg-type]
    return times


def recorded(times: Times) -> tuple[dict[str, list[float]], bool]:
    summary = CompileSummary()
    times.put(summary)
    return {row.function: list(row.seconds) for row in summary.compile_times}, summary.compile_times_complete


def test_a_reset_that_was_seen_loses_nothing(metrics: dict[str, list[float]]) -> None:
    times = Times()
    metrics["f"] = [1.0]
    times.collect()
    metrics.clear()
    metrics["f"] = [2.0]
    times.collect()
    assert recorded(times) == ({"f": [1.0, 2.0]}, True)


def test_two_resets_during_a_pause_may_lose_times(metrics: dict[str, list[float]]) -> None:
    times = Times()
    metrics["f"] = [1.0]
    times.collect()
    for seconds in (2.0, 3.0):
        metrics.clear()
        metrics["f"] = [seconds]
    times.collect(after_pause=True)
    assert recorded(times) == ({"f": [1.0, 3.0]}, False)


def test_a_pause_without_a_reset_loses_nothing(metrics: dict[str, list[float]]) -> None:
    times = Times()
    times.collect(after_pause=True)
    metrics["f"] = [1.0]
    times.collect()
    metrics["f"].append(2.0)
    times.collect(after_pause=True)
    assert recorded(times) == ({"f": [1.0, 2.0]}, True)


def test_a_setting_that_torch_renamed_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.14 would warn of that in the training process; the setting has its new name in the list, too."""

    class Config(ModuleType):
        def __getattr__(self, name: str) -> bool:
            raise FutureWarning(name)

    config = Config("config")
    vars(config)["_config"] = {"compile_on_one_rank": SimpleNamespace(deprecated=True)}
    monkeypatch.setitem(sys.modules, "torch.distributed.config", config)
    target = Environment()
    _fill_settings(target, None)
    assert "torch.distributed.config.compile_on_one_rank" not in target.settings
