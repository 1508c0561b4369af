"""What a condition says, and what is said of one that is none."""

import pytest

from tb_torchcompile_plugin.analysis.compare.gate import InvalidGateError, parse_condition, read_settings
from tb_torchcompile_plugin.analysis.compare.measures import METRICS


@pytest.mark.parametrize(
    ("text", "metric", "pattern", "amount", "percent"),
    [
        ("step>3%", "step", "", 3, True),
        (" step > 3 % ", "step", "", 3, True),
        ("step>500us", "step", "", 500_000, False),
        ("step>500µs", "step", "", 500_000, False),
        ("compile>1.5s", "compile", "", 1.5e9, False),
        ("breaks>0", "breaks", "", 0, False),
        ("step>0", "step", "", 0, False),
        ("memory>100MB", "memory", "", 1e8, False),
        ("memory>2GiB", "memory", "", 2**31, False),
        ("kernel:triton_*>10%", "kernel", "triton_*", 10, True),
        ("kernel:void f<float>(int)>10%", "kernel", "void f<float>(int)", 10, True),
        ("kernel:a>=b>2us", "kernel", "a>=b", 2000, False),
    ],
)
def test_what_a_condition_says(text, metric, pattern, amount, percent):
    one = parse_condition(text)
    assert (one.text, one.metric, one.pattern) == (text.strip(), metric, pattern)
    assert (one.amount, one.percent, one.inclusive) == (amount, percent, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stepp>3%", METRICS),
        ("step", ["'step>3%'"]),
        ("step<3%", ["'step>3%'"]),
        ("step>-3%", ["'step>3%'"]),
        ("step>3", ["unit", "us", "ms", "%"]),
        ("step>3MB", ["'MB'", "us", "ms", "%"]),
        ("breaks>3ms", ["'ms'", "none", "%"]),
        ("step:triton_*>3%", ["pattern", "kernel"]),
        ("", ["'step>3%'"]),
    ],
)
def test_a_wrong_one_is_named_with_what_there_is(text, says):
    with pytest.raises(InvalidGateError) as error:
        parse_condition(text)
    assert repr(text) in str(error.value) and all(word in str(error.value) for word in says)


@pytest.mark.parametrize(
    ("text", "base", "head", "holds"),
    [
        ("step>3%", 1000, 1030, False),
        ("step>3%", 1000, 1031, True),
        ("step>=3%", 1000, 1030, True),
        ("step>3%", 1000, 900, False),
        ("breaks>0", 2, 2, False),
        ("breaks>0", 2, 3, True),
        ("breaks>1", 2, 3, False),
        ("guards>10%", 0, 0, False),
        ("guards>10%", 0, 1, True),
    ],
)
def test_when_it_holds(text, base, head, holds):
    assert parse_condition(text).holds(base, head) is holds


def written(folder, text):
    (folder / "x.toml").write_text(text)
    return str(folder / "x.toml")


def test_a_file_and_the_command_line_add_up(tmp_path):
    file = written(tmp_path, '[gate]\nfail_on = ["breaks>0"]\nallow = ["torch"]\nname = "model"\n')
    settings = read_settings(["step>3%", "breaks>0"], ["unknown"], "", file)
    assert [one.text for one in settings.conditions] == ["breaks>0", "step>3%"]
    assert (settings.allow, settings.name) == (["torch", "unknown"], "model")
    assert read_settings([], [], "mine", file).name == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "[gate]"),
        ("gate = []", "[gate]"),
        ("[gate", "[gate]"),
        ("[gate]\nfailon = []", "failon"),
        ('[gate]\nfail_on = "breaks>0"', "fail_on"),
        ('[gate]\nallow = ["everything"]', "world-size"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_with_it(tmp_path, text, says):
    with pytest.raises(InvalidGateError) as error:
        read_settings([], [], "", written(tmp_path, text))
    assert says in str(error.value)
