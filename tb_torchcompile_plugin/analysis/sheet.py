"""How is a column shown, where the name of its field does not determine it? As part of the field's type."""

from typing import Any

import msgspec


def column_head(title: str = "", **options: bool) -> msgspec.Meta:
    """Describe the column of a field, or the table of a field that holds rows.

    Used as `self_us: Annotated[float, column_head("Self", bar=True)]`.
    title: the column's head, where the name of the field would not do. options: `bar` next to the number, `total` below
    the column, `hidden` until the user chooses it, `grow` for a text that takes the rest of the width, `wrap` for one
    that is shown in full on several lines, `unseen` for no column at all, `unix` for seconds that are a date;
    `inner` for a field of rows: the table shows how many, the details of a row list them.
    """
    extra: dict[str, Any] = {name: value for name, value in options.items() if value}
    return msgspec.Meta(title=title or None, extra=extra)
