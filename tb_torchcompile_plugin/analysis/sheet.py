"""How is a column shown, where the name of its field does not determine it? And a value that is in no table?"""

from typing import Any

import msgspec


def column_head(title: str = "", **options: bool) -> msgspec.Meta:
    """Describe the column of a field, or the table of a field that holds rows.

    Used as `self_us: Annotated[float, head("Self", bar=True)]`.
    title: the column's head, where the name of the field would not do. options: `bar` next to the number, `total` below
    the column, `hidden` until the user chooses it, `grow` for a text that takes the rest of the width, `wrap` for one
    that is shown in full on several lines, `unseen` for no column at all; `inner` for a field of rows: the table shows
    how many, the details of a row list them.
    """
    extra: dict[str, Any] = {name: value for name, value in options.items() if value}
    return msgspec.Meta(title=title or None, extra=extra)


class Fact(msgspec.Struct, frozen=True):
    """One value with its label."""

    label: str
    value: str | None  # None where unknown
    title: str = ""  # what it is
    unknown: str = ""  # why it is unknown
