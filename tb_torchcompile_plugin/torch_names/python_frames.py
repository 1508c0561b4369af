"""Python functions as the profiler's stacks name them, and ONE rule for whether one is of the user's program.

`model.py(17): forward`: the file, the line that the function begins at, the function. The profiler cuts off the folder
that a module was imported from, so the files of packages begin with the package (`torch/nn/functional.py`), those
beside the script with their own name; nothing else tells that they were installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

RESUME = "torch_dynamo_resume_in_"  # before the name of what goes on after a graph break
_MODULE = "nn.Module: "
_COMPILED_MODULE = "OptimizedModule_"
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_RESUME = re.compile(rf"{RESUME}(?P<function>.*)_at_(?P<line>\d+)")
_BACKWARD = re.compile(r"torch[\\/](?:_tensor|autograd[\\/](?:__init__|graph))\.py\(\d+\): |run_backward")
_HOOK = re.compile(r"_?(?:start|stop)_recording_(?:forward|backward)|_?(?:start|stop)_profiling\w*")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_TYPED_IN = re.compile(r"<(?:stdin>|console>|python-input-|ipython-input-|doctest )")
_GENERATED = re.compile(  # by inductor, by torch.fx, by Triton
    r"(?:^|[\\/])(?:torchinductor_[^\\/]+[\\/]|\.triton[\\/]cache[\\/]|c[a-z2-7]{51}\.py$|fx_generated_\w+\.py$)"
)
_INSTALLED = re.compile(
    r"(?:^|[\\/])(?:(?:site|dist)-packages|lib(?:64)?[\\/]py(?:thon|py)3[^\\/]*|Python3\d+[\\/]Lib)[\\/]"
    r"|[\\/](?:mini|ana|micro)?(?:conda|forge)\d*(?:[\\/]envs[\\/][^\\/]+)?[\\/]Lib[\\/]"
    r"|[\\/]pytorch[^\\/]*[\\/]torch[\\/]"  # a checkout of torch itself; a folder `torch` may be the user's
    r"|[\\/]torch[\\/](?:_[a-z]\w*|autograd|nn[\\/](?:modules|parallel|functional))\b"
)
# The compiler's own, and what stands between a program and torch: notebooks, debuggers, progress bars, this one.
_LIBRARIES = """torch torchgen functorch triton numpy tqdm IPython ipykernel traitlets tornado debugpy pydevd _pytest
    pluggy tb_torchcompile_plugin"""
# What people train with. Installed or a copy, the profiler does not tell: its lines count where the program has none.
_FRAMEWORKS = """transformers accelerate datasets diffusers peft trl tokenizers sentence_transformers
    huggingface_hub safetensors evaluate lightning pytorch_lightning lightning_fabric lightning_utilities
    torchmetrics timm torchvision torchaudio torchtext torchdata torchao torchtune torchtitan torchrec
    torch_geometric torch_scatter torch_sparse dgl kornia monai deepspeed apex megatron xformers flash_attn
    bitsandbytes liger_kernel einops vllm sglang ray fastai ignite composer catalyst ultralytics detectron2 mmengine
    mmcv open_clip PIL cv2 skimage scipy sklearn pandas pyarrow polars hydra omegaconf wandb mlflow tensorboard
    tensorboardX gymnasium stable_baselines3 fsspec"""
_STANDARD = """asyncio collections compression concurrent ctypes curses dbm distutils email encodings ensurepip html
    http importlib json lib2to3 logging multiprocessing pathlib pydoc_data re sqlite3 string sysconfig tkinter tomllib
    unittest urllib venv wsgiref xml xmlrpc zipfile zoneinfo"""
_FRAMEWORK_PACKAGES = {*_FRAMEWORKS.split()}
_PACKAGES = {*_LIBRARIES.split(), *_STANDARD.split()}
# Many programs have a test.py of their own; modules that are built in have no file.
_MODULES = sys.stdlib_module_names - {"test"} - set(sys.builtin_module_names) | {"ipykernel_launcher"}


class PythonFrame(NamedTuple):
    file: str
    line: int
    function: str


def frame_of(name: str) -> PythonFrame | None:
    """None for what is no function in a file: one that is built in, a module, an operator."""
    match = _FRAME.fullmatch(name)
    return PythonFrame(match["file"], int(match["line"]), match["function"]) if match else None


def runs_graph(name: str) -> bool:
    """Whether a slice of a stack is the function that inductor writes to run a graph, one launch after the other."""
    frame = frame_of(name)
    return frame is not None and frame.function == "call" and _GENERATED.search(frame.file) is not None


@lru_cache(maxsize=65536)
def is_users(name: str) -> bool:
    """Whether a slice of a stack is a function of the user's program: see `is_users_file`."""
    frame = frame_of(name)
    return frame is not None and is_users_file(frame.file)


def is_users_file(file: str) -> bool:
    """Whether the user wrote it, or has a copy in their program: not installed, not Python's or torch's, not generated.

    A package that is not known counts as the user's where the profiler cut off that it was installed.
    """
    if file.startswith("<"):
        return _TYPED_IN.match(file) is not None
    if _GENERATED.search(file) or _INSTALLED.search(file):
        return False
    package, *inside = re.split(r"[\\/]", file, maxsplit=1)
    return package not in _PACKAGES if inside else package.removesuffix(".py") not in _MODULES


@lru_cache(maxsize=65536)
def is_frameworks(name: str) -> bool:
    """Whether a slice of a stack is a function of a library that people train with."""
    frame = frame_of(name)
    return frame is not None and re.split(r"[\\/]", frame.file, maxsplit=1)[0] in _FRAMEWORK_PACKAGES


def is_programs(name: str) -> bool:
    """Whether a slice of a stack is a function of the program itself, and not of a library that people train with."""
    return is_users(name) and not is_frameworks(name)


def resumed_from(function: str) -> tuple[str, int] | None:
    """Of a function that goes on after a graph break: the function that broke, and the line."""
    match = _RESUME.fullmatch(function)
    return (match["function"], int(match["line"])) if match else None


def without_address(name: str) -> str:
    """A name that is the same for all objects of its kind: `<built-in method to of Tensor object>`."""
    return _ADDRESS.sub("", name)


def module_of(name: str) -> str | None:
    """The module that a slice is a call of, `Linear_3`: the fourth Linear that ran. None for functions."""
    return name.removeprefix(_MODULE) if is_module_call(name) else None


def is_module_call(name: str) -> bool:
    """Whether a slice is a call of a module."""
    return name.startswith(_MODULE)


def wraps_module(module: str) -> bool:
    """Whether it is what `torch.compile(module)` puts around a module."""
    return module.startswith(_COMPILED_MODULE)


def is_backward_call(name: str) -> bool:
    """Whether a function only starts autograd and waits for it: what runs meanwhile stands on autograd's thread."""
    return _BACKWARD.search(name) is not None


def is_profiler_hook(function: str) -> bool:
    """Whether a compiled function is a hook that a profiler hangs on modules: Lightning's do."""
    return _HOOK.fullmatch(function) is not None


def is_torchs(name: str) -> bool:
    """Whether a slice of a stack is a function of torch's, or a module that torch calls."""
    return name.startswith(("torch/", "torch\\", _MODULE)) or (
        name.startswith("<built-in") and " torch" in name
    )


# Python tracebacks in torch's texts. Standard library only: this runs inside training.


_TRACEBACK_LINE = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE
)
_SUMMARY = re.compile(r"Line: (?P<line>\d+), Name: (?P<function>.*), Filename: (?P<file>.*)$", re.DOTALL)


class TracebackFrame(NamedTuple):
    """`source`: the line of code below it, "" where it is not quoted."""

    file: str
    line: int
    function: str
    source: str = ""


def places(text: str) -> Iterator[TracebackFrame]:
    """The frames of all formatted tracebacks in a text, outermost first, each with the code that is quoted below it."""
    for match in _TRACEBACK_LINE.finditer(text):
        below = text[match.end() + 1 :].partition("\n")[0]
        quoted = (
            below.startswith(("    ", "\t")) and below.strip("^~ \t\r") and not _TRACEBACK_LINE.match(below)
        )
        yield TracebackFrame(
            match["file"], int(match["line"]), match["function"].strip(), below.strip() if quoted else ""
        )


def first_traceback(text: str) -> str:
    """The first traceback of a text, up to the line that does not belong to it."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith('  File "')), len(lines))
    last = next((at for at in range(first, len(lines)) if lines[at][:2] != "  "), len(lines))
    return "\n".join(lines[first:last])


def summary_place(text: str) -> TracebackFrame | None:
    """A frame as torch keeps it in its metrics."""
    match = _SUMMARY.match(text)
    return TracebackFrame(match["file"], int(match["line"]), match["function"]) if match else None
