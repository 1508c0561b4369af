"""Write the tables of causes in docs/findings.md from the classes of analysis/causes and ranks (`make types`).

The docstring of a cause is what its row says. `--check` fails when the page is not what this would write.
"""

from __future__ import annotations

import inspect
import json
import sys
from itertools import groupby
from pathlib import Path

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause
from tb_torchcompile_plugin.analysis.causes.registry import CAUSES
from tb_torchcompile_plugin.analysis.ranks import job_findings

TARGET = Path(__file__).parent.parent / "docs" / "findings.md"
BEGIN, END = "<!-- causes: made by tools/make_findings.py -->\n", "<!-- end of causes -->\n"


def main() -> int:
    """Write the page, or compare it with `--check`."""
    page = TARGET.read_text()
    text = generate(page)
    if "--check" in sys.argv and text != page:
        print(f"{TARGET} is stale: run `make types`", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def generate(page: str) -> str:
    """Return the page with the tables of today's causes, one for each family in the order of evaluation."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    families = (
        _table(module, list(causes))
        for module, causes in groupby((*CAUSES, *job_findings.CAUSES), lambda cause: type(cause).__module__)
    )
    return before + BEGIN + "\n".join(families) + END + after


def _table(module: str, causes: list[Cause]) -> str:
    question = (sys.modules[module].__doc__ or "").strip().splitlines()[0]
    head = f"\n### {question}\n\n| cause | role | reported when | limit |\n|---|---|---|---|\n"
    return head + "".join(map(_row, causes))


def _row(cause: Cause) -> str:
    text = " ".join((inspect.getdoc(cause) or "").split())
    limits = ", ".join(f"`{name}` = {json.dumps(getattr(thresholds, name))}" for name in cause.limits)
    gain = "gain" if isinstance(cause, PricedCause) else "–"
    return f"| `{cause.id}` | {cause.role} | {text} | {limits or gain} |\n"


if __name__ == "__main__":
    sys.exit(main())
