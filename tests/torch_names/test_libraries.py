"""Which functions prepare data, compute metrics or write logs."""

import pytest

from tb_torchcompile_plugin.torch_names import python_frames
from tb_torchcompile_plugin.torch_names.python_frames import is_program_function, is_user_file, library_work

PACKAGES = "/home/user/.venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("function", "library", "does"),
    [
        ("transformers/tokenization_utils_base.py(2800): __call__", "transformers", "tokenizes text"),
        ("transformers/models/bert/tokenization_bert.py(90): tokenize", "transformers", "tokenizes text"),
        ("torchvision/transforms/v2/_container.py(50): forward", "torchvision", "transforms data"),
        ("PIL\\Image.py(2200): resize", "PIL", "transforms data"),
        ("torchmetrics/metric.py(300): forward (sampled)", "torchmetrics", "computes metrics"),
        (f"{PACKAGES}/sklearn/metrics/_ranking.py(90): score", "sklearn", "computes metrics"),
        ("sklearn/utils/_param_validation.py(190): wrapper", "sklearn", "computes metrics"),
        ("lightning/pytorch/core/module.py(552): log_dict", "lightning", "writes logs"),
        ("pytorch_lightning/loggers/csv_logs.py(90): log_metrics", "pytorch_lightning", "writes logs"),
        ("torch/utils/tensorboard/writer.py(350): add_scalar", "torch", "writes logs"),
        ("csv.py(150): writerow", "csv", "writes logs"),
        ("pandas/core/frame.py(1500): iterrows", "pandas", "prepares data"),
        ("torch/nn/utils/clip_grad.py(190): clip_grad_norm_", "torch", "clips gradients"),
    ],
)
def test_what_a_library_does(function: str, library: str, does: str) -> None:
    work = library_work(function)
    assert work is not None and (work.library, work.does) == (library, does)


@pytest.mark.parametrize(
    "function",
    [
        *("", "aten::mul", "nn.Module: Compose_0", "train.py(40): logging", "evaluate.py(3): main"),
        *("datasets_of_mine/read.py(3): read", "numpy/core/fromnumeric.py(3500): mean"),
        *("sklearn/preprocessing/_data.py(80): transform", "/home/user/datasets/read.py(3): read"),
        "torchvision/models/resnet.py(80): forward",
        "transformers/models/bert/modeling_bert.py(900): forward",
        "transformers/trainer.py(2100): train",
        "lightning/pytorch/core/module.py(1300): optimizer_step",
        "lightning/pytorch/trainer/trainer.py(522): fit",
        "torch/nn/modules/module.py(1775): _wrapped_call_impl",
    ],
)
def test_anything_else(function: str) -> None:
    assert library_work(function) is None


@pytest.mark.parametrize("package", sorted({name for row in python_frames._ROWS for name in row[2].split()}))
def test_a_library_is_not_the_users_program(package: str) -> None:
    assert not is_user_file(f"/x/site-packages/{package}/module.py")
    assert not is_program_function(f"{package}/module.py(3): function")
