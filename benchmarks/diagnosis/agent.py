"""An agent that knows nothing but the tools: what it is told of a recorded program, and in how many bytes.

    python -m benchmarks.diagnosis.agent FOLDER     # of tests/data/2.11.0/exam, unpacked: a line a program

It lists, reads the report, looks at the first finding and at the row that it points to, then searches for its file;
where it has no line, it looks at the hottest ones. Nothing here knows a program, a rule or a cause.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client
from mcp.types import CallToolResult, TextContent

from tb_torchcompile_plugin.cli.mcp import server

_PLACE = re.compile(r"([\w./-]+\.py):(\d+)")
_CALL = re.compile(r"show\(id='([^']*)'")


class Learned(NamedTuple):
    """rule: of the first finding, None where there is none. place: the first "file:line" that it names, "" without one.
    texts: all answers."""

    rule: str | None
    title: str
    place: str
    texts: list[str]

    @property
    def bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)


def text_of(result: CallToolResult) -> str:
    """The one text of an answer, or of an error."""
    (content,) = result.content
    assert isinstance(content, TextContent) and result.structured_content is None
    return content.text


def learned(folder: Path) -> Learned:
    """What the tools tell of the one run below a folder."""
    return anyio.run(_learn, str(folder))


async def _learn(folder: str) -> Learned:
    texts: list[str] = []
    async with Client(server(folder)) as client:

        async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            texts.append(text_of(result))
            assert not result.is_error, texts[-1]
            answer: dict[str, Any] = json.loads(texts[-1])
            return answer

        await ask("list")
        tables = (await ask("report"))["tables"]
        rows = [row for table in tables if table["section"] == "findings" for row in table["rows"]]
        if not rows:
            return Learned(None, "", "", texts)
        shown = await ask("show", id=rows[0]["id"])
        for call in shown.get("next", [])[:1]:
            await ask("show", id=_CALL.findall(call)[0])
        finding = shown["row"]
        place = _PLACE.search(" ".join((*finding.get("where", []), finding["title"])))
        if place:
            await ask("search", word=place[0].partition(":")[0])
        else:
            await ask("report", section="your_code", top=3)
        return Learned(finding["rule"], finding["title"], place[0] if place else "", texts)


def main(folder: Path) -> None:
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    for row in rows:
        answer = learned(folder / row["name"])
        planted = row["name"], row["cause"] or "healthy", row["line"]
        print(*planted, answer.rule, answer.place or "–", answer.bytes, sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
