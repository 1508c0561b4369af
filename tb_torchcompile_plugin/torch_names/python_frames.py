"""Python functions as the profiler's stacks name them, whose program they are of, and tracebacks in torch's texts.

`model.py(17): forward`: the file, the line that the function begins at, the function. The profiler cuts off the folder
that a module was imported from, so the files of packages begin with the package (`torch/nn/functional.py`), those
next to the script with their own name; nothing else shows that they were installed. Libraries that prepare data,
compute metrics or write logs are known by name, with where that work belongs. Standard library only: this runs inside
training.
"""

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import dropwhile, takewhile
from typing import NamedTuple

from tb_torchcompile_plugin.torch_names import patterns


class LibraryWork(NamedTuple):
    """What a library does for a line of the program."""

    library: str  # its package
    does: str  # behind the library's name
    next_step: str


_INSTALLED = r"(?:.*[\\/](?:site|dist)-packages[\\/])?"
# The work, where it belongs, packages that do it, and files and functions of others. The first match counts.
_ROWS = (
    (
        "tokenizes text",
        "Tokenize once before the loop and keep the result, for example with datasets.map, or in data loader workers; "
        "give a tokenizer a list of texts, not one after the other",
        "tokenizers sentencepiece tiktoken spacy nltk",
        r"transformers[\\/](?:models[\\/]\w+[\\/])?tokenization_",
    ),
    (
        "transforms data",
        "Transform in data loader workers, DataLoader(..., num_workers=4), or whole batches on the GPU: "
        "the transforms of torchvision.transforms.v2 take batches",
        "torchaudio albumentations PIL cv2 skimage imgaug imageio librosa soundfile decord",
        r"torchvision[\\/](?:transforms|io)[\\/]|kornia[\\/]augmentation[\\/]"
        r"|transformers[\\/](?:models[\\/]\w+[\\/])?(?:image_processing_|image_transforms|feature_extraction_|processing_)",
    ),
    (
        "computes metrics",
        "Compute metrics once per epoch or every 100 steps, and collect predictions or counts on the GPU until then. "
        "Disable input checks in each step, for example with validate_args=False in torchmetrics",
        "torchmetrics torcheval evaluate pycocotools seqeval sacrebleu rouge_score",
        r"sklearn[\\/](?:metrics|utils)[\\/]|(?:pytorch_)?lightning[\\/](?:pytorch[\\/])?utilities[\\/]grads\.py",
    ),
    (
        "writes logs",
        "Log a few values every 50 or 100 steps: keep them on the GPU until then, and read them at once",
        "wandb mlflow tensorboard tensorboardX comet_ml neptune clearml swanlab logging",
        r"csv\.py|torch[\\/]utils[\\/]tensorboard[\\/]|accelerate[\\/]tracking\.py"
        r"|(?:pytorch_)?lightning(?:_fabric)?[\\/](?:\w+[\\/])?loggers[\\/]"
        r"|(?:pytorch_)?lightning[\\/](?:pytorch[\\/])?core[\\/]module\.py\(\d+\): log(?:_dict)?\b"
        r"|transformers[\\/](?:integrations[\\/]integration_utils\.py|trainer\.py\(\d+\): (?:_maybe_log|log)\b)",
    ),
    (
        "prepares data",
        "Prepare data once before the loop, in data loader workers, or with tensors on the GPU",
        "pandas polars pyarrow datasets h5py zarr webdataset",
        r"(?!)",  # none
    ),
    (
        "clips gradients",
        "Clip all parameters at once, with the default foreach, and do not read the norm in each step",
        "",
        r"torch[\\/]nn[\\/]utils[\\/]clip_grad\.py",
    ),
)
_matches = [
    (
        (does, next_step),
        re.compile(
            rf"{_INSTALLED}(?=(?P<library>\w+))(?:(?:{'|'.join(packages.split())})[\\/]|{others})"
        ).match,
    )
    for does, next_step, packages, others in _ROWS
]


@lru_cache(patterns.CACHED_NAMES)
def library_work(function: str) -> LibraryWork | None:
    """Return what a library does in a function that is named `file(line): function`; None for anything else."""
    attempts = ((texts, match(function)) for texts, match in _matches)
    return next((LibraryWork(match["library"], *texts) for texts, match in attempts if match), None)


def is_library_work(function: str) -> bool:
    """Whether a library does in a function what a step need not wait for."""
    return library_work(function) is not None


RESUME = "torch_dynamo_resume_in_"  # before the name of a function that resumes after a graph break
_MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_RESUME = re.compile(rf"{RESUME}(?P<function>.*)_at_(?P<line>\d+)")

_is_typed_in = patterns.begins(r"<(?:stdin>|console>|python-input-|ipython-input-|doctest )")
# By inductor, by torch.fx, by Triton.
_GENERATED_FOLDER = r"(?:torchinductor_[^\\/]+|\.triton[\\/]cache)[\\/]"
_GENERATED_FILE = r"(?:c[a-z2-7]{51}|fx_generated_\w+)\.py"
_is_generated = patterns.contains(rf"(?:^|[\\/])(?:{_GENERATED_FOLDER}|{_GENERATED_FILE}$)")
# A slice of a stack that is the function that inductor writes to run a graph, one launch after the other.
runs_graph = patterns.equals(rf"(?:.*[\\/])?(?:{_GENERATED_FOLDER}.+|{_GENERATED_FILE})\(\d+\): call")
_is_installed = patterns.contains(
    r"(?:^|[\\/])(?:(?:site|dist)-packages|lib(?:64)?[\\/]py(?:thon|py)3[^\\/]*|Python3\d+[\\/]Lib)[\\/]"
    r"|[\\/](?:mini|ana|micro)?(?:conda|forge)\d*(?:[\\/]envs[\\/][^\\/]+)?[\\/]Lib[\\/]"
    r"|[\\/]pytorch[^\\/]*[\\/]torch[\\/]"  # a checkout of torch itself; a folder `torch` may be the user's
    r"|[\\/]torch[\\/](?:_[a-z]\w*|autograd|nn[\\/](?:modules|parallel|functional))\b"
)
# The compiler's own, and what is between a program and torch: notebooks, debuggers, progress bars, this one.
_LIBRARIES = """torch torchgen functorch triton numpy tqdm IPython ipykernel traitlets tornado debugpy pydevd _pytest
    pluggy tb_torchcompile_plugin"""
# What people train with, installed or a copy: its lines count where the program has none.
_FRAMEWORK_NAMES = """transformers accelerate datasets diffusers peft trl tokenizers sentence_transformers
    huggingface_hub safetensors evaluate lightning pytorch_lightning lightning_fabric lightning_utilities
    torchmetrics timm torchvision torchaudio torchtext torchdata torchao torchtune torchtitan torchrec
    torch_geometric torch_scatter torch_sparse dgl kornia monai deepspeed apex megatron xformers flash_attn
    bitsandbytes liger_kernel einops vllm sglang ray fastai ignite composer catalyst ultralytics detectron2 mmengine
    mmcv open_clip PIL cv2 skimage scipy sklearn pandas pyarrow polars hydra omegaconf wandb mlflow tensorboard
    tensorboardX gymnasium stable_baselines3 fsspec sentencepiece tiktoken spacy nltk albumentations imgaug imageio
    librosa soundfile decord torcheval pycocotools seqeval sacrebleu rouge_score comet_ml neptune clearml swanlab h5py
    zarr webdataset"""
_STANDARD = """asyncio collections compression concurrent ctypes curses dbm distutils email encodings ensurepip html
    http importlib json lib2to3 logging multiprocessing pathlib pydoc_data re sqlite3 string sysconfig tkinter tomllib
    unittest urllib venv wsgiref xml xmlrpc zipfile zoneinfo"""
# A slice of a stack that is a function of a library that people train with.
is_framework_function = patterns.equals(rf"(?:{'|'.join(_FRAMEWORK_NAMES.split())})(?:[\\/].*)?\(\d+\): .+")
_PACKAGES = {*_LIBRARIES.split(), *_STANDARD.split()}
# Many programs have a test.py of their own; modules that are built in have no file.
_MODULES = sys.stdlib_module_names - {"test"} - set(sys.builtin_module_names) | {"ipykernel_launcher"}

is_module_call = patterns.begins(_MODULE)  # a slice that is a call of a module
module_of = patterns.first_group(rf"(?s:{_MODULE}(.*))")  # `Linear_3`: the fourth Linear that ran
# the same for all objects: `<built-in method to of Tensor object>`
without_address = patterns.without(r" at 0x[0-9a-f]+")
wraps_module = patterns.begins("OptimizedModule_")  # what `torch.compile(module)` puts around a module
# A function that only starts autograd and waits for it: what runs meanwhile is on autograd's thread.
is_backward_call = patterns.contains(
    r"torch[\\/](?:_tensor|autograd[\\/](?:__init__|graph))\.py\(\d+\): |run_backward"
)
# A compiled function that is a hook which a profiler hangs on modules: Lightning's do.
is_profiler_hook = patterns.equals(
    r"_?(?:start|stop)_recording_(?:forward|backward)|_?(?:start|stop)_profiling\w*"
)
is_optimizer_function = patterns.contains(r"[\\/]optim(?:izers?)?(?:[\\/]|\.py)")
# A function of a profiler's, or one that marks what runs inside, as around the step of an optimizer: gone without one.
is_profiler_function = patterns.begins(
    r"(?:torch[\\/](?:profiler|autograd[\\/]profiler|optim[\\/]optimizer\.py\(\d+\): (?:wrapper|profile_hook_step)\b)"
    r"|tb_torchcompile_plugin[\\/]|profiler::_record_function)"
)
# A slice of a stack that is a function of torch's, or a module that torch calls.
is_torch_function = patterns.begins(rf"(?s:torch[/\\]|{_MODULE}|<built-in.* torch)")


class PythonFrame(NamedTuple):
    """A Python function, or a frame of a traceback that torch printed."""

    file: str
    line: int
    function: str
    source: str = ""  # the line of code below it in a traceback, "" where it is not quoted


def frame_of(name: str) -> PythonFrame | None:
    """Parse the name of a slice; None for what is no function in a file: built in, a module, an operator."""
    match = _FRAME.fullmatch(name)
    return PythonFrame(match["file"], int(match["line"]), match["function"]) if match else None


@lru_cache(patterns.CACHED_NAMES)
def is_user_function(name: str) -> bool:
    """Whether a slice of a stack is a function of the user's program: see `is_user_file`."""
    frame = frame_of(name)
    return frame is not None and is_user_file(frame.file)


def is_user_file(file: str) -> bool:
    """Whether the user wrote it, or has a copy in their program: not installed, not Python's or torch's, not generated.

    An unknown package counts as the user's where the profiler cut off that it was installed.
    """
    if file.startswith("<"):
        return _is_typed_in(file)
    if _is_generated(file) or _is_installed(file):
        return False
    package, *inside = re.split(r"[\\/]", file, maxsplit=1)
    return package not in _PACKAGES if inside else package.removesuffix(".py") not in _MODULES


def is_program_function(name: str) -> bool:
    """Whether a slice of a stack is a function of the program itself, and not of a library that people train with."""
    return is_user_function(name) and not is_framework_function(name)


def resumed_from(function: str) -> tuple[str, int] | None:
    """Return the function and the line of the graph break that this function resumes after."""
    match = _RESUME.fullmatch(function)
    return (match["function"], int(match["line"])) if match else None


def readable_function(function: str) -> str:
    """Return "forward after line 26" for the function that torch made for the code after a graph break."""
    resumed = resumed_from(function)
    return f"{resumed[0]} after line {resumed[1]}" if resumed else function


# Tracebacks in torch's texts.
_TRACEBACK_LINE = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE
)


def traceback_frames(text: str) -> Iterator[PythonFrame]:
    """Yield the frames of all formatted tracebacks in a text, outermost first, with the code quoted below them."""
    for match in _TRACEBACK_LINE.finditer(text):
        below = text[match.end() + 1 :].partition("\n")[0]
        quoted = (
            below.startswith(("    ", "\t")) and below.strip("^~ \t\r") and not _TRACEBACK_LINE.match(below)
        )
        yield PythonFrame(
            match["file"], int(match["line"]), match["function"].strip(), below.strip() if quoted else ""
        )


def first_traceback(text: str) -> str:
    """Return the first traceback of a text, up to the line that does not belong to it."""
    lines = dropwhile(lambda line: not line.startswith('  File "'), text.splitlines())
    return "\n".join(takewhile(lambda line: line.startswith("  "), lines))


def frame_of_summary(text: str) -> PythonFrame | None:
    """Parse a frame as torch keeps it in its metrics."""
    match = re.match(r"(?s)Line: (?P<line>\d+), Name: (?P<function>.*), Filename: (?P<file>.*)$", text)
    return PythonFrame(match["file"], int(match["line"]), match["function"]) if match else None
