"""What torch may rename stands in `torch_names` alone: a renamed label is one file to change."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tb_torchcompile_plugin
from tb_torchcompile_plugin.torch_names import artifacts, kernels, records, slices
from tb_torchcompile_plugin.torch_names import graph_breaks as failures
from tb_torchcompile_plugin.torch_names import records as phases

ROOT = Path(tb_torchcompile_plugin.__file__).parent
NAMES = re.compile(  # beginnings of names, and what is in them
    r"ProfilerStep|TorchDynamo|Torch-Compiled|Pregraph|AOTDispatcher Runtime|CompiledFunction|"
    r"## Call|dynamo_timed|compile_inner|entire_(frame|backward)_compile|Optimizer\.(step|zero)|DataLoader\)#|"
    r"autograd::|nn\.Module: |OptimizedModule_|torch_dynamo_resume|Python GC|site-packages|eval_with_key|"
    r"cuLaunch|GraphLaunch|Synchronize|nccl:|ncclDev|c10d::|record_param_comms|aten::|c10::|triton_(poi|red|per|tem)_|"
    r"async_compile|extern_kernels|cpp_fused|fmha|cudnn|cublas|nvjet|RecompileLimit|cache_size_limit|"
    r"skipping cudagraphs|___check|GLOBAL_STATE|Graph break in user code|please visit|DataParallel\."
)


def constants(module: object) -> Iterator[str]:
    """The texts among the constants of a module of names."""
    for name, value in vars(module).items():
        if name.isupper() or name.lstrip("_").isupper():
            values = value if isinstance(value, tuple | frozenset | set | dict) else (value,)
            yield from (text for text in values if isinstance(text, str))


# Words that the server uses for its own things, too, and fields of metrics, which keep torch's names in the summary.
OURS = {
    *phases.PHASES,
    *artifacts.CACHES,
    *kernels.CATEGORIES,
    artifacts.TORCH_VERSION,
    *records.SAFE_TEXTS,
    slices.LANE_CAT,
}
WORDS = {
    word
    for module in (artifacts, failures, phases, records, slices)
    for word in constants(module)
    if "_" in word or " " in word or "." in word
} - OURS


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module, without what documents it."""
    tree = ast.parse(path.read_text())
    documents = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and id(node) not in documents
            and isinstance(node.value, str | bytes)
        ):
            yield node.lineno, str(node.value)


MODULES = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if path.parent.name != "torch_names" and not path.name.endswith("_pb2.py")
]


def test_no_other_module_spells_a_name_of_torch() -> None:
    spelled = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in MODULES
        for line, text in literals(path)
        if text in WORDS or NAMES.search(text)
    ]
    assert len(MODULES) > 200 and spelled == []
