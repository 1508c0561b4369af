"""Recognize libraries that prepare data, compute metrics or write logs in a function, with where that work belongs.

Functions are named as in the profiler's stacks, or with the folder that they are installed in. Standard library only:
this runs inside training.
"""

import re
from functools import lru_cache
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
