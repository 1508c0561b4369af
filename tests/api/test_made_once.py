"""What is asked of a profile or of compile data is answered once, whoever asks for it, and however many at a time."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType

import pytest

import tb_torchcompile_plugin
from recordings import Recording
from served import BREAKS, SPAN, ask_span, make_client, make_plugin
from tb_torchcompile_plugin.api import routes, session
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.reader import memo
from tb_torchcompile_plugin.reader.memo import Memoized

pytestmark = pytest.mark.slow

PACKAGE = str(Path(tb_torchcompile_plugin.__file__).parent)
Calls = Counter[tuple[str, int]]


@contextmanager
def answers_counted() -> Iterator[Calls]:
    """How often each function of a subject and of nothing else runs, by file and name, and the subject's id."""
    calls, subjects, before = Calls(), [], sys.getprofile()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_filename == memo.__file__:
            return
        # Each value of a generator counts as a call; lambdas are the conditions of rules, all of one name.
        if code.co_flags & CO_GENERATOR or code.co_name == "<lambda>":
            return
        arguments = code.co_varnames[: code.co_argcount]
        if len(arguments) == 1 + (code.co_name == "__init__") and not code.co_kwonlyargcount:
            subject = frame.f_locals[arguments[-1]]
            if isinstance(subject, Memoized) and arguments[-1] != "self":
                subjects.append(subject)  # kept, or its id might be given to another one
                calls[f"{code.co_filename}:{code.co_name}", id(subject)] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]  # None stops it


def made_more_often(calls: Calls) -> dict[str, int]:
    assert len(calls) > 40
    return {name: times for (name, _), times in calls.items() if times > 1}


def test_the_tab_makes_every_answer_once(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages that ask for everything at once, and wait for it: how far it is was another question."""
    monkeypatch.setattr(session, "PATIENCE_S", 60)
    client = make_client(make_plugin(recording("breaks")))
    asked = [
        (name, SPAN if route.subject.name == "span" else BREAKS)
        for name, route in routes.ROUTES.items()
        if route.subject.name in ("span", "worker")
        and all(parameter.optional for parameter in route.parameters)
    ]
    statuses: list[int] = []

    def page() -> None:
        statuses.extend(ask_span(client, ids, name).status_code for name, ids in asked)

    with answers_counted() as calls:
        pages = [threading.Thread(target=page) for _ in range(2)]
        for one in pages:
            one.start()
        for one in pages:
            one.join()
    assert statuses == [200] * 2 * len(asked)
    assert made_more_often(calls) == {}


@pytest.mark.parametrize("name", ["breaks", "resnet18"])
def test_the_report_makes_every_answer_once(recording: Recording, name: str) -> None:
    with answers_counted() as calls:
        read_report(str(recording(name)))
    assert made_more_often(calls) == {}
