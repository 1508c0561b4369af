"""Which programs did torch.export trace?"""

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.compile_log.record import forward_compilations, optional_number
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import is_export


class ExportCall(msgspec.Struct, frozen=True):
    """One call of torch.export."""

    compile_id: str
    epoch: int
    function: str  # of torch
    file: str  # the program's line
    line: int | None


class Exports(msgspec.Struct, frozen=True):
    """The calls of torch.export."""

    sentences: tuple[str, ...]
    exports: tuple[ExportCall, ...]


def exports(data: CompileData) -> Exports:
    """Return the exports in the order in which they began."""
    exported = [row for row in forward_compilations(data.summary).values() if is_export(row.key.compile_id)]
    calls = tuple(
        ExportCall(
            compile_id=row.key.compile_id,
            epoch=row.key.epoch,
            function=row.function,
            file=row.file,
            line=optional_number(row, "line"),
        )
        for row in sorted(exported, key=lambda row: (len(row.key.compile_id), row.key.compile_id))
    )
    headline = f"{plural(len(calls), 'export')}." if calls else "torch.export was not called."
    return Exports((headline,), calls)
