"""A kernel as a program of its own: inductor's benchmark of it, made to listen to TORCHINDUCTOR_MAX_AUTOTUNE.

Inductor writes the benchmark into the source of each Triton kernel when TORCHINDUCTOR_BENCHMARK_KERNEL=1 is set while
it compiles. The text is only ever written out, never run here.
"""

from __future__ import annotations

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.output_code import Definition
from tb_torchcompile_plugin.torch_names.artifacts import BENCHMARKED, TUNING_SETTING

_HEAD = """\
# Inductor's own benchmark of {name}
# ({where}).
#
# Run it where torch sees a GPU like the one that it was compiled for. The caches are emptied before each launch.
#
#     python {file}
#     TORCHINDUCTOR_MAX_AUTOTUNE=1 python {file}    # tries what max-autotune tries

import os

MAX_AUTOTUNE = os.environ.get("TORCHINDUCTOR_MAX_AUTOTUNE") == "1"

"""


def benchmark(definition: Definition, where: str, file: str) -> str:
    """The text of the program. where: the run and graph that it is of. Raises UserError where there is no benchmark."""
    if not definition.has_benchmark:
        raise UserError(
            f"the source of {definition.name} holds no benchmark",
            next_step="Record the run with TORCHINDUCTOR_BENCHMARK_KERNEL=1 set before compiling",
        )
    source = TUNING_SETTING.sub(r"\1MAX_AUTOTUNE", definition.source).rstrip()
    variable = BENCHMARKED.search(source)
    report = f'    print(f"{{1000 * ms:.2f}} µs", {variable[1]}.launchers[0].config)' if variable else ""
    words = {"name": definition.name, "where": where, "file": file}
    return (
        _HEAD.format(**{key: " ".join(text.split()) for key, text in words.items()}) + f"{source}\n{report}\n"
    )
