"""pytest_plugin.py: the fixture, and what a test that fails says."""

import re
from pathlib import Path

import pytest

from fresh import loaded_by
from live import needs_torch, run_all, torch_before

pytestmark = needs_torch
PLUGIN = "tb_torchcompile_plugin.writer.pytest_plugin"
RUN = f"""
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "{PLUGIN}", "-p", "no:cacheprovider", "test_model.py"]))
"""
TESTS = '''
import torch

def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2

def test_breaks(torchcompile):
    with torchcompile.record() as r:
        torch.compile(broken, backend="eager")(torch.ones(3))
    assert r.graph_breaks == 0

def test_breaks_again(torchcompile):
    """Compiled by the test before, and nevertheless counted."""
    with torchcompile.record() as r:
        torch.compile(broken, backend="eager")(torch.ones(3))
    assert 0 == r.graph_breaks

def test_recompiles(torchcompile):
    f = torch.compile(lambda x: x + 1, backend="eager")
    with torchcompile.record() as r:
        f(torch.ones(3))
        assert r.graphs == 1 and r.recompiles == 0 and r.guards > 0
    assert [row.what for row in r.graphs] == ["<lambda>"] and f"{r.graphs}" == "1"
    with torchcompile.record() as r:
        f(torch.ones(3))
        assert r.graphs == r.guards == 0
        f(torch.ones(3, dtype=torch.float64))
    assert not r.recompiles

def test_skips(torchcompile):
    def loop(x):
        for _ in range(3):
            torch._dynamo.graph_break()
        return x + 1
    with torchcompile.record() as r:
        torch.compile(loop, backend="eager")(torch.ones(3))
    assert r.skipped_frames < 1

def test_nothing_is_known(torchcompile):
    with torchcompile.record() as r:
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(3))
    assert r.kernels == 0
    assert r.cache_misses == 0

def test_passes(torchcompile):
    with torchcompile.record() as r:
        torch.compile(lambda x: x + 3, backend="eager")(torch.ones(3))
    assert r.graph_breaks == 0 and r.graphs == 1
'''


def test_pytest_loads_no_torch_for_it() -> None:
    assert not loaded_by(f"import {PLUGIN}") & {"torch", "google", "numpy", "msgspec", "tensorboard"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_model.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    statuses, text = run_all(RUN, folder, [[]], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", COLUMNS="200")
    assert statuses == [1], text
    return text


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 says why it broke in other words")
def test_each_failure_names_its_reason_and_line(printed: str) -> None:
    assert "5 failed, 1 passed" in printed
    for said in (
        r"assert 1 graph break == 0\nE +/.*test_model\.py:6: Call to `torch\._dynamo\.graph_break\(\)`",
        r"assert 0 == 1 graph break\nE +/.*test_model\.py:6: Call to",
        r"assert not 1 recompile: /.*test_model\.py:21: <lambda>: 0/0: tensor 'x' dtype mismatch",
        r"UnknownCount: the number of skipped frames is unknown: torch 2\.8 and older do not record"
        if torch_before("2.9")
        else r"assert 1 skipped frame < 1\nE +/.*test_model\.py:33: loop: ",
        r"UnknownCount: the number of cache misses is unknown: torch recorded no cache lookups",
    ):
        assert re.search(said, printed), said


def test_torchs_compile_log_is_not_shown_with_a_failure(printed: str) -> None:
    assert "torch.__trace" not in printed.partition("test_skips")[2]


def test_the_entry_point_is_declared() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'[project.entry-points.pytest11]\ntorchcompile = "{PLUGIN}"' in project
