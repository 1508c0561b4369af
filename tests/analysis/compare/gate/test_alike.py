"""Ten pairs of one program with itself, recorded on a machine that others kept busy: the gate is never red."""

import pytest

from gates import judged
from tb_torchcompile_plugin.cli.compare import recorded_runs
from tb_torchcompile_plugin.compile_log.counts import COUNTS

STRICT = ("step>3%", "memory>5%", "compile>20%", "kernel:cpp_fused_*>10%", *(f"{name}>0" for name in COUNTS))


@pytest.fixture(scope="module")
def runs(recording):
    folders = sorted(one for one in recording("alike").iterdir() if one.is_dir())
    return [recorded_runs(str(folder))[0] for folder in folders]


@pytest.mark.parametrize("pair", range(10))
def test_a_pair_is_never_red(runs, pair):
    for base, head in ((2 * pair, 2 * pair + 1), (2 * pair + 1, 2 * pair)):
        report = judged(runs[base], runs[head], *STRICT, allow=["unknown"])
        assert report.outcome == "passed"
        outcomes = {one.metric: one.outcome for one in report.conditions}
        exact = {outcomes[name] for name in COUNTS if name != "cache_misses"}
        assert exact == {"passed"}  # equal, and known
        assert outcomes["step"] in ("passed", "noise")  # known, too


def test_of_all_380_pairs_two_steps_are_beyond_its_noise(runs):
    """One run tells nothing of what another program does to the next one: that is what several runs are for."""
    pairs = [(base, head) for base in runs for head in runs if base is not head]
    failed = sum(judged(*pair, *STRICT, allow=["unknown"]).outcome == "failed" for pair in pairs)
    assert failed <= 2


def test_against_several_runs_the_step_is_never_red(runs):
    for place, head in enumerate(runs):
        others = [runs[(place + step) % len(runs)] for step in range(1, 6)]
        assert judged(others, head, "step>3%").outcome == "passed"
