"""Every committed recording is read once, and all that is true of each one is checked of the same answers.

Every answer has the bytes that were reviewed: a refactoring changes none. `python tools/snapshot.py diff HEAD RECORDING
"ANSWER"` shows what differs; `update` accepts it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len

import snapshot
from profiles import IDENTITIES, spans_of
from shown_numbers import different
from tb_torchcompile_plugin.analysis.finding import SECTIONS
from tb_torchcompile_plugin.api import report as reports
from tb_torchcompile_plugin.api.answers.sections import tables
from tb_torchcompile_plugin.api.answers.show import seen_at
from tb_torchcompile_plugin.api.report import Report
from tb_torchcompile_plugin.api.routes import ROUTES
from tb_torchcompile_plugin.profile.profile import Profile
from terminal import COLUMNS, LINES, height, of_commands

SMALL = snapshot.recordings(committed_only=True)
LARGE = {name: path for name, path in snapshot.recordings(huge=True).items() if name not in SMALL}
OF_MANY_PROGRAMS = {"exam", "jobs", "strangers", "library_kernels"}  # no screen is of several programs
OF_THE_SUITE = "exam"  # its programs are asked for their findings elsewhere, and have the same code


class Answered(NamedTuple):
    """A recording, and all answers about it."""

    name: str
    answers: dict[str, bytes]
    profiles: list[Profile]
    report: Report  # the last one that was printed

    @property
    def folder(self) -> str:
        """That of its archive."""
        return self.name.rpartition("/")[2]


@pytest.fixture(scope="module", params=SMALL)
def answered(request: pytest.FixtureRequest) -> Iterator[Answered]:
    """One after the other: what is true of a recording is asked before the next one is read."""
    printed: list[Report] = []
    read = reports.read_report

    def read_and_keep(*arguments: Any) -> Report:
        printed[:] = [read(*arguments)]
        return printed[0]

    with pytest.MonkeyPatch.context() as patch, snapshot.unpacked(SMALL[request.param]) as logdir:
        patch.setattr(reports, "read_report", read_and_keep)
        served = snapshot.Served(logdir)
        answers = dict(snapshot.answers(served, logdir))
        profiles = [] if request.param.endswith(OF_THE_SUITE) else spans_of(served.plugin._session)
        yield Answered(request.param, answers, profiles, *printed)


@pytest.mark.slow
def test_no_answer_about_a_small_recording_has_changed(answered: Answered) -> None:
    hashes = {name: snapshot.hash_of(body) for name, body in answered.answers.items()}
    assert snapshot.differences(answered.name, hashes) == []


@pytest.mark.slow
def test_its_report_fits_one_screen(answered: Answered) -> None:
    text, _, status = answered.answers["$ report"].decode().partition("\nexit status ")
    if answered.folder not in OF_MANY_PROGRAMS:
        assert status == "0\n" and 8 <= height(text) <= LINES and "\x1b" not in text
        lines = text.splitlines()
        assert all(cell_len(line) <= COLUMNS for line in lines[: -len(of_commands(lines))])


@pytest.mark.slow
def test_each_finding_leads_to_a_row_or_a_section(answered: Answered) -> None:
    rows = {
        seen_at(table.place._replace(section=table.section), row)
        for table in tables(answered.report)
        if table.section != "findings"
        for row in table.rows
    }
    for finding in answered.report.findings:
        if finding.row is None:
            assert finding.section in SECTIONS[finding.panel], finding.title
        else:
            assert finding.row.partition(":")[0] in SECTIONS[finding.panel], finding.title
            assert (finding.panel, finding.row) in rows, finding.title


@pytest.mark.slow
def test_each_question_has_one_number(answered: Answered) -> None:
    assert [row for profile in answered.profiles for row in different(profile)] == []


@pytest.mark.slow
@pytest.mark.parametrize("holds", IDENTITIES, ids=lambda identity: identity.__name__)
def test_sums_are_what_the_documents_promise(answered: Answered, holds: Callable[[Profile], None]) -> None:
    for profile in answered.profiles:
        holds(profile)


@pytest.mark.large
@pytest.mark.parametrize("name", LARGE)
def test_no_answer_about_a_large_recording_has_changed(name: str) -> None:
    assert snapshot.changed(name, LARGE[name]) == []


def test_the_snapshot_asks_every_route() -> None:
    asked = {answer.split()[0] for answers in snapshot.committed().values() for answer in answers}
    assert set(ROUTES) - asked == {"trace_file"}  # the recording itself


def test_every_recording_is_in_the_snapshot() -> None:
    assert set(SMALL) <= set(snapshot.committed())
