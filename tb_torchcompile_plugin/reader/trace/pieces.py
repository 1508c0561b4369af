"""A file in pieces: parts of columns, each with the vocabulary that its codes belong to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tb_torchcompile_plugin.reader.trace.codes import Array, Combo
from tb_torchcompile_plugin.reader.trace.decode import DecodedPart, Decoder


@dataclass
class Vocabulary:
    """What the codes of one decoder mean."""

    combos: list[Combo] = field(default_factory=list)
    texts: dict[str, list[bytes]] = field(default_factory=dict)

    def learn_words(self, combos: list[Combo], texts: dict[str, list[bytes]]) -> None:
        """Add what a decoder in another process has learnt since it last told."""
        self.combos.extend(combos)
        for name, words in texts.items():
            self.texts.setdefault(name, []).extend(words)

    def learn(self, decoder: Decoder) -> None:
        """Take over the decoder's dictionaries."""
        self.combos = list(decoder.combos)
        self.texts = {name: list(texts)[1:] for name, texts in decoder.interners.items()}


@dataclass(frozen=True)
class StoredArray:
    """A column of a part that a worker process left in a file."""

    path: str
    offset: int
    count: int
    dtype: str

    def load(self) -> Array:
        return np.fromfile(self.path, self.dtype, self.count, offset=self.offset)


@dataclass
class Piece:
    """One part and the vocabulary that explains it. Pieces come in file order."""

    part: DecodedPart
    vocabulary: Vocabulary

    def load(self, name: str, dtype: Any) -> Array:
        column: Any = self.part.columns.get(name)
        if column is None:
            return np.zeros(0, dtype)
        return column.load() if isinstance(column, StoredArray) else column


def spool_part(part: DecodedPart, path: str) -> DecodedPart:
    """Move the part's columns to the end of a file. Where that fails with an OSError the part is whole all the same."""
    columns: dict[str, Any] = part.columns
    with open(path, "ab") as file:
        for name, values in columns.items():
            stored = StoredArray(path, file.tell(), len(values), values.dtype.str)
            file.write(values.data)
            file.flush()
            columns[name] = stored
    return part
