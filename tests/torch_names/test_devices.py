"""Peaks of devices, by the names that drivers give them."""

import re
from pathlib import Path

import pytest

from tb_torchcompile_plugin.torch_names.devices import TABLE, VARIABLE, peak_of

# (name as the profiler writes it, GB/s, TFLOP/s in BF16)
REAL = [
    ("NVIDIA H200", 4800, 989),
    ("NVIDIA H200 NVL", 4800, 835),
    ("NVIDIA H100 80GB HBM3", 3350, 989),
    ("NVIDIA H100 PCIe", 2000, 756),
    ("NVIDIA H100 NVL", 3900, 835),
    ("NVIDIA B200", 8000, 2250),
    ("NVIDIA A100-SXM4-40GB", 1555, 312),
    ("NVIDIA A100-SXM4-80GB", 2039, 312),
    ("NVIDIA A100 80GB PCIe", 1935, 312),
    ("NVIDIA A100-PCIE-40GB", 1555, 312),
    ("A100-SXM4-40GB", 1555, 312),
    ("NVIDIA L4", 300, 121),
    ("NVIDIA L40S", 864, 362),
    ("Tesla T4", 320, 65),
    ("Tesla V100-SXM2-16GB", 900, 125),
    ("Tesla V100S-PCIE-32GB", 1134, 130),
    ("AMD Instinct MI300X", 5300, 1307.4),
    ("AMD Instinct MI300X VF", 5300, 1307.4),
    ("AMD Instinct MI300X OAM", 5300, 1307.4),
    ("AMD Instinct MI300A", 5300, 980.6),
    ("AMD Instinct MI325X", 6000, 1307.4),
    ("AMD Instinct MI250X", 1638, 191.5),
    ("AMD Instinct MI250", 1638, 181),
]


@pytest.mark.parametrize(("name", "bandwidth", "bf16"), REAL)
def test_real_devices_have_their_peaks(name: str, bandwidth: float, bf16: float) -> None:
    peak = peak_of(name)
    assert peak is not None and (peak.bandwidth_gb_s, peak.bf16_tflop_s) == (bandwidth, bf16)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA H2000",
        "NVIDIA H100X",
        "NVIDIA L400",
        "NVIDIA A10G",
        "NVIDIA H20",  # no data sheet tells its figures
        "NVIDIA H200 MIG 1g.18gb",  # a seventh of one
        "AMD Instinct MI308X",
        "Graphics",
        "My GPU",
    ],
)
def test_what_is_not_in_the_table_is_not_known(name: str | None) -> None:
    assert peak_of(name) is None


def test_the_user_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        VARIABLE, '{"My GPU": {"bandwidth_gb_s": 1000}, "NVIDIA H200": {"bandwidth_gb_s": 4000}}'
    )
    mine, h200, h100 = peak_of("My GPU"), peak_of("NVIDIA H200"), peak_of("NVIDIA H100 PCIe")
    assert mine is not None and (mine.bandwidth_gb_s, mine.bf16_tflop_s) == (1000, None)
    assert h200 is not None and h200.bandwidth_gb_s == 4000
    assert h100 is not None and h100.bandwidth_gb_s == 2000


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"x": 3}', '{"x": {"bandwith": 3}}', '{"x": {"bandwidth_gb_s": "a"}}']
)
def test_figures_that_are_not_understood_are_said_to_be(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=VARIABLE):
        peak_of("NVIDIA H200")


def test_the_document_lists_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "kernels.md").read_text()
    listed = re.findall(r"^\| `(.+)` \| (.+) \| ([\w ]+) \|$", text, re.MULTILINE)
    rows = [(pattern, figures) for pattern, figures, _ in listed]
    sources = re.findall(r"^- \*\*([\w ]+)\*\*: ", text, re.MULTILINE)
    assert {source for *_, source in listed} == set(sources), (
        "every row has its source, and every source its rows"
    )

    def figure(value: float | None) -> str:
        return "–" if value is None else f"{value:g}"

    assert rows == [
        (
            pattern.replace("|", "\\|"),
            " | ".join(
                figure(value)
                for value in (peak.bandwidth_gb_s, peak.fp32_tflop_s, peak.tf32_tflop_s, peak.bf16_tflop_s)
            ),
        )
        for pattern, peak in TABLE
    ]
