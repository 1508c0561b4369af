"""The text of one artifact: out of the summary, or out of the log that it still lies in."""

from __future__ import annotations

from tb_torchcompile_plugin.compile_log.payloads import DAMAGED, text_of
from tb_torchcompile_plugin.errors import NotFound, UserError
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.torch_trace.log_records import payload_at

_HOW = 'Record with tensorboard_trace_handler(..., capture="full"), which is the default'


def read_payload(data: CompileData, number: int) -> str:
    """The text of artifact `number` of this data. Raises NotFound, saying why there is none, and UserError."""
    artifacts = data.summary.artifacts
    if not 0 <= number < len(artifacts):
        raise _nothing(data, number)
    packages = data.packages
    if packages is not None and number >= packages.first:
        return read_payload(packages.data, packages.numbers[number - packages.first])
    artifact = artifacts[number]
    if artifact.HasField("log_offset") and data.log is not None:
        with copies.local(data.log) as path:
            return payload_at(path, artifact.log_offset, artifact.log_bytes, artifact.name)
    if artifact.payload >= len(data.summary.payloads):
        raise UserError("refers to a text that it does not hold", file=data.file, next_step="Record it again")
    try:
        return text_of(data.summary, artifact.payload)
    except DAMAGED as error:
        raise UserError(
            "holds a text that is damaged", file=data.file, next_step="Record it again"
        ) from error


def _nothing(data: CompileData, number: int) -> NotFound:
    if data.summary.environment.capture == "summary":
        return NotFound(
            'no graphs and no code were stored: the run was recorded with capture="summary"', next_step=_HOW
        )
    return NotFound(
        f"there is no artifact {number}", file=data.file, next_step="Reload: the file may have changed"
    )
