"""Reading torch's state prints, warns and raises nothing in the training process, under any filter of warnings."""

from pathlib import Path

import pytest

from live import needs_torch, run, summaries, torch_before

pytestmark = needs_torch

PROGRAM = """
    import contextlib, sys, warnings
    with warnings.catch_warnings():  # what torch itself warns of when it is imported or compiles
        warnings.simplefilter("ignore")
        import torch, torch._dynamo, torch._inductor.config
        with contextlib.suppress(ImportError):  # torch 2.8
            import torch.distributed.config
        from torch.profiler import ProfilerActivity, profile
        torch.compile(torch.sin, backend="aot_eager")(torch.ones(3))
    warnings.simplefilter("{action}")

    from tb_torchcompile_plugin import tensorboard_trace_handler
    handler = tensorboard_trace_handler("logs", triton=True)
    cpu = ProfilerActivity.CPU
    if hasattr(torch.profiler, "ProfilerActivityConfig"):  # from torch 2.15 on
        cpu = {{cpu: torch.profiler.ProfilerActivityConfig()}}
    # torch 2.11 itself warns when events are not accumulated
    with profile(activities=[cpu], on_trace_ready=handler, acc_events=True):
        torch.compile(torch.cos, backend="aot_eager")(torch.ones(3))
"""


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 itself warns when it ends")
@pytest.mark.parametrize("action", ["error", "always"])
def test_nothing_is_printed_and_nothing_is_lost(tmp_path: Path, action: str) -> None:
    """From torch 2.14 on, reading torch.distributed.config.compile_on_one_rank would warn."""
    printed = run(PROGRAM.format(action=action), tmp_path, KINETO_LOG_LEVEL="99")
    (summary,) = summaries(tmp_path / "logs")
    assert printed == ""
    assert len(summary.compilations) == 2 and not summary.warnings
    assert summary.environment.settings["torch._inductor.config.fx_graph_cache"] == "True"
    names = [name.rpartition(".")[2] for name in summary.environment.settings]
    assert names.count("compile_on_one_rank") == (not torch_before("2.11"))
