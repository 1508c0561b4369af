"""baseline.py: what is saved comes back; same runs, same bytes; a bad file is said to be one."""

import json
import random
import zlib
from contextlib import suppress

import pytest

from gates import a_run, count, judged, kernels, timed
from tb_torchcompile_plugin.analysis.compare import baseline
from tb_torchcompile_plugin.analysis.compare.baseline import MAX_BYTES, is_baseline, load, save
from tb_torchcompile_plugin.analysis.compare.measures import MAX_ITEMS, MAX_SAMPLES, MeasuredItem
from tb_torchcompile_plugin.cli.compare import recorded_runs
from tb_torchcompile_plugin.errors import UserError

RUN = a_run(
    "model",
    devices=["NVIDIA H200"],
    torch="2.14.1",
    step=timed(1000, 1001, items=[MeasuredItem("the GPU idles: python", value=7)], needs_runs=True),
    kernel=kernels(k=[1, 2]),
    breaks=count(1, MeasuredItem("graph break", "why", "train/model.py", 12, 1)),
)


def test_what_is_saved_comes_back(tmp_path):
    path = str(tmp_path / "base.tbtc")
    assert save([RUN, RUN], path, "1.0") < 1000
    assert load(path) == [RUN, RUN] and is_baseline(path)


@pytest.mark.parametrize("name", ["resnet18", "resnet18_eager", "breaks"])
def test_recordings_come_back_and_are_small(recording, tmp_path, name):
    path = str(tmp_path / "base.tbtc")
    runs = recorded_runs(str(recording(name)))
    assert save(runs, path, "1.0") < 5_000
    assert load(path) == runs == recorded_runs(path)
    data = (tmp_path / "base.tbtc").read_bytes()
    save(recorded_runs(str(recording(name))), path, "1.0")
    assert (tmp_path / "base.tbtc").read_bytes() == data
    assert str(recording(name)).encode() not in data


def test_it_is_known_by_its_content_too(tmp_path):
    save([RUN], str(tmp_path / "base.tbtc"), "1.0")
    (tmp_path / "base.tbtc").rename(tmp_path / "base.bin")
    (tmp_path / "x.json").write_text("{}")
    assert is_baseline(str(tmp_path / "base.bin"))
    assert not is_baseline(str(tmp_path / "x.json")) and not is_baseline(str(tmp_path))


def test_no_cut_and_no_flip_makes_another_run(tmp_path):
    """What is compressed has a checksum."""
    path = tmp_path / "base.tbtc"
    save([RUN], str(path), "1.0")
    data = path.read_bytes()
    flips = [data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :] for place in range(len(data))]
    for bad in (*flips, *(data[:place] for place in range(len(data)))):
        path.write_bytes(bad)
        with suppress(UserError):
            assert load(str(path)) == [RUN]


@pytest.mark.parametrize("bad", [b"", b"no baseline", b"\xff" * 50])
def test_what_is_none_is_said_to_be_none(tmp_path, bad):
    (tmp_path / "base.tbtc").write_bytes(bad)
    with pytest.raises(UserError, match=r"base\.tbtc: .*baseline save"):
        load(str(tmp_path / "base.tbtc"))


def by_hand(path, **fields):
    """A baseline as another program writes it: one step time, without samples, and whatever else is given."""
    return with_head(path, [{"measures": {"step": {"value": 1000}}, **fields}], baseline.FORMAT_VERSION)


def with_head(path, runs, version):
    head = baseline.KIND + f" {version}, plugin 1.0\n".encode()
    path.write_bytes(head + zlib.compress(runs if isinstance(runs, bytes) else json.dumps(runs).encode()))
    return str(path)


@pytest.mark.parametrize(("step", "outcome"), [((1000,), "passed"), ((1100, 1101), "unknown")])
def test_one_written_by_hand_without_samples_is_compared_as_far_as_it_goes(tmp_path, step, outcome):
    """It named its kernels in no way, and a rise of the step asked for them: that was a KeyError."""
    base = load(by_hand(tmp_path / "base.tbtc"))
    report = judged(base, a_run(step=timed(*step), kernel=kernels(k=step)), "step>3%")
    assert report.outcome == outcome
    assert judged(base, RUN, "kernel>3%", "breaks>0").outcome == "unknown"


@pytest.mark.parametrize("number", [0.0, -1, float("nan"), float("inf"), "1"])
def test_impossible_numbers_are_refused(tmp_path, number):
    file = by_hand(tmp_path / "base.tbtc", program={"calls": {"gemm": number}})
    with pytest.raises(UserError, match="damaged"):
        load(file)


@pytest.mark.parametrize("runs", [[], b'[{"name": "\xff"}]', b'[{"x":' + b"[" * 3000])
def test_a_baseline_without_runs_is_refused(tmp_path, runs):
    with pytest.raises(UserError, match="damaged"):
        load(with_head(tmp_path / "base.tbtc", runs, baseline.FORMAT_VERSION))


def test_a_newer_format_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(UserError, match="pip install --upgrade"):
        load(with_head(tmp_path / "base.tbtc", ["?"], baseline.FORMAT_VERSION + 1))


def test_many_large_runs_stay_within_the_limit(tmp_path):
    random.seed(0)
    steps = {
        f"triton_{random.randbytes(60).hex()}": [random.randrange(10**6) for _ in range(MAX_SAMPLES)]
        for _ in range(MAX_ITEMS)
    }
    runs = [a_run(kernel=kernels(**steps))] * 3
    path = str(tmp_path / "base.tbtc")
    assert 50_000 < save(runs, path, "1.0") <= MAX_BYTES
    (first, *_) = load(path)
    kept = first.measures["kernel"]
    assert len(kept.items) == MAX_ITEMS and len(kept.samples) == len(kept.items[0].samples)
    assert [sum(step) for step in zip(*(item.samples for item in kept.items))] == kept.samples


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match="Choose another path"):
        save([RUN], str(tmp_path), "1.0")
    assert list(tmp_path.iterdir()) == []
