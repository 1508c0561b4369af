"""Where each panel has much to show, and the logdir that holds it: of committed recordings alone."""

import shutil
from pathlib import Path
from typing import get_args

from recordings import Recording
from tb_torchcompile_plugin.analysis.finding import Panel
from traces import slice_, write_trace

PANELS: tuple[Panel, ...] = get_args(Panel)
RECORDINGS = ("resnet18", "resnet18_eager", "breaks", "everything")
GRAPHS = ("moved_parameters", "static_lengths")
JOB, PROGRAMS = "exposed_communication", ("changing_attribute", "attention_of_new_lengths")

_PLACES: dict[Panel, dict[str, str]] = {
    "graph_breaks": {"run": "breaks"},
    "step": {"run": "breaks"},
    "recompiles": {"run": "changing_attribute"},
    "compilations": {"run": "moved_parameters"},
    "findings": {"run": "attention_of_new_lengths"},
    "memory": {"run": "everything"},
    "your_code": {"run": "breaks"},
    "operators": {"run": "everything"},
    "ranks": {"run": JOB},
    "compare": {"run": "resnet18", "run2": "resnet18_eager"},
}
# A trace without steps, kernels, stacks, memory or compile data.
EMPTY = {"run": "nothing"}


def place(panel: Panel) -> dict[str, str]:
    """The address of a panel, of a run about which it says much."""
    return {"panel": panel, **_PLACES.get(panel, {"run": "resnet18"})}


def fill(logdir: Path, recording: Recording) -> Path:
    """The runs of all places, and one in which next to nothing was recorded."""
    for name in RECORDINGS:
        shutil.copytree(recording(name), logdir / name)
    for name in PROGRAMS:
        shutil.copytree(recording("exam") / name, logdir / name)
    for name in GRAPHS:
        shutil.copytree(recording("graphs") / name, logdir / name)
    shutil.copytree(recording("jobs") / JOB, logdir / JOB)
    _write_bare(logdir / EMPTY["run"])
    return logdir


def _write_bare(folder: Path) -> None:
    write_trace(folder, [slice_("aten::mm", 3, 4)])
