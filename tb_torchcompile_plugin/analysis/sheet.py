"""What the type of a row says of how its column is shown, where the field's own name does not."""

from __future__ import annotations

from typing import Any

import msgspec


def head(title: str = "", **look: bool) -> msgspec.Meta:
    """`self_us: Annotated[float, head("Self", bar=True)]`, for fields of rows and for fields that hold rows.

    title: the head, where the name of the field would not do. look: `bar` beside the number, `total` below the
    column, `hidden` until somebody chooses it, `grow` for a text that takes what is left of the width.
    """
    extra: dict[str, Any] = {name: value for name, value in look.items() if value}
    return msgspec.Meta(title=title or None, extra=extra)
