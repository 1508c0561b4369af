"""read_queue.py: a bounded pool, a queue, and what happens when nobody waits any more. Time is made by hand here."""

import threading
import time
from collections.abc import Iterator

import pytest

from served import wait_for
from tb_torchcompile_plugin.api import read_queue as readings
from tb_torchcompile_plugin.api.read_queue import Progress, Reading, ReadQueue
from tb_torchcompile_plugin.errors import TorchCompilePluginError, UserError
from tb_torchcompile_plugin.reader.trace.kineto import BytesRead, Cancelled


class Clock:
    """Seconds that pass when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A reading that lasts until it is let go or stopped. `runs` counts its starts."""

    def __init__(self, name: str = "x") -> None:
        self.name, self.runs = name, 0
        self.started, self.let_go = threading.Event(), threading.Event()

    def __call__(self, reading: Reading[str]) -> str:
        self.runs += 1
        self.started.set()
        while not self.let_go.wait(0.005):
            if reading.stop():
                raise Cancelled(self.name)
        return f"{self.name} {self.runs}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Iterator[ReadQueue[str, str]]:
    made: ReadQueue[str, str] = ReadQueue(places=1, clock=clock)
    yield made
    made.close()


def ask(pool: ReadQueue[str, str], job: Job, made_of: object = 1) -> Reading[str]:
    return pool.ask(job.name, made_of, Progress(job.name, 0, 100, 0, None), job)


def cancelled(reading: Reading[str]) -> bool:
    return isinstance(reading.future.exception(timeout=60), Cancelled)


def test_an_answer_is_made_once_and_kept(pool: ReadQueue[str, str]) -> None:
    job = Job()
    job.let_go.set()
    assert [ask(pool, job).future.result(60) for _ in range(3)] == ["x 1"] * 3


def test_an_answer_made_of_other_files_is_made_again(pool: ReadQueue[str, str]) -> None:
    job = Job()
    job.let_go.set()
    assert ask(pool, job, "old").future.result(60) == "x 1"
    assert ask(pool, job, "new").future.result(60) == "x 2"


def test_files_that_keep_changing_do_not_start_a_reading_over(pool: ReadQueue[str, str]) -> None:
    job = Job()
    first = ask(pool, job, "old")
    assert ask(pool, job, "new") is first
    job.let_go.set()
    assert first.future.result(60) == "x 1"
    assert ask(pool, job, "new").future.result(60) == "x 2"


def test_the_queue_tells_its_places(pool: ReadQueue[str, str]) -> None:
    jobs = [Job(name) for name in "abc"]
    asked = [ask(pool, job) for job in jobs]
    jobs[0].started.wait(60)
    asked[0].advance(BytesRead("/a/long/path", 30, 100, 7, 1.5))
    assert pool.progress(asked[0]) == Progress("a", 30, 100, 7, 1.5, "reading", 0)
    assert pool.progress(asked[2]) == Progress("c", 0, 100, 0, None, "queued", 2)
    jobs[0].let_go.set()
    jobs[1].started.wait(60)
    assert pool.progress(asked[2]).queue_position == 1


def test_no_more_run_at_a_time_than_there_are_places() -> None:
    pool: ReadQueue[str, str] = ReadQueue(places=2)
    jobs = [Job(name) for name in "abcd"]
    asked = [ask(pool, job) for job in jobs]
    wait_for(lambda: sum(job.started.is_set() for job in jobs) == 2)
    time.sleep(0.05)
    assert [pool.progress(reading).stage for reading in asked] == ["reading"] * 2 + ["queued"] * 2
    for job in jobs:
        job.let_go.set()
    assert [reading.future.result(60) for reading in asked] == ["a 1", "b 1", "c 1", "d 1"]
    pool.close()


def test_what_is_polled_goes_on_and_what_is_not_stops(pool: ReadQueue[str, str], clock: Clock) -> None:
    job = Job()
    reading = ask(pool, job)
    job.started.wait(60)
    for _ in range(3):
        clock.now += readings.PATIENCE_S - 1
        assert ask(pool, job) is reading
    time.sleep(0.03)
    assert not reading.future.done()
    clock.now += readings.PATIENCE_S + 1
    assert cancelled(reading)


def test_patience_is_short_while_others_wait(pool: ReadQueue[str, str], clock: Clock) -> None:
    left, waiting = Job("left"), Job("waiting")
    reading = ask(pool, left)
    left.started.wait(60)
    clock.now += readings.PATIENCE_IN_QUEUE_S + 1
    time.sleep(0.03)
    assert not reading.future.done()
    ask(pool, waiting)
    assert cancelled(reading)
    assert waiting.started.wait(60)


def test_who_left_the_queue_is_never_started(pool: ReadQueue[str, str], clock: Clock) -> None:
    running, left = Job("running"), Job("left")
    ask(pool, running)
    reading = ask(pool, left)
    clock.now += readings.PATIENCE_S + 1
    ask(pool, running)
    running.let_go.set()
    assert cancelled(reading)
    assert left.runs == 0


def test_a_cancelled_one_stops_at_once_and_starts_anew_for_the_next(
    pool: ReadQueue[str, str], clock: Clock
) -> None:
    job = Job()
    reading = ask(pool, job)
    job.started.wait(60)
    pool.cancel("x")
    clock.now += readings.GRACE_S + 0.1
    assert cancelled(reading)
    again = ask(pool, job)
    job.let_go.set()
    assert again.future.result(60) == "x 2"


def test_another_page_that_polls_saves_it(pool: ReadQueue[str, str], clock: Clock) -> None:
    job = Job()
    reading = ask(pool, job)
    pool.cancel("x")
    clock.now += readings.GRACE_S / 2
    assert ask(pool, job) is reading
    clock.now += readings.GRACE_S
    time.sleep(0.03)
    assert not reading.future.done()


def test_cancelling_what_is_not_read_does_nothing(pool: ReadQueue[str, str]) -> None:
    pool.cancel("nothing")
    job = Job()
    job.let_go.set()
    ask(pool, job).future.result(60)
    pool.cancel("x")
    assert ask(pool, job).future.result(60) == "x 1"


def test_answers_are_kept_up_to_a_number_and_those_on_their_way_all(pool: ReadQueue[str, str]) -> None:
    done = [Job(f"done {number}") for number in range(readings.KEPT + 5)]
    for job in done:
        job.let_go.set()
        ask(pool, job).future.result(60)
    waiting = [ask(pool, Job(f"waiting {number}")) for number in range(readings.KEPT + 5)]
    assert [ask(pool, Job(f"waiting {number}")) for number in range(len(waiting))] == waiting
    ask(pool, done[-1])
    ask(pool, done[0])
    assert (done[-1].runs, done[0].runs) == (1, 1)
    assert pool.progress(ask(pool, done[0])).stage == "queued"  # it was forgotten, and is read again


def test_a_failure_is_given_to_whoever_asks_until_it_is_forgotten(pool: ReadQueue[str, str]) -> None:
    def fail(_: Reading[str]) -> str:
        raise UserError("gone")

    progress = Progress("x", 0, 1, 0, None)
    reading = pool.ask("x", 1, progress, fail)
    assert isinstance(reading.future.exception(10), UserError)
    assert pool.ask("x", 1, progress, fail) is reading
    pool.forget("x", reading)
    assert pool.ask("x", 1, progress, fail) is not reading


def test_closing_stops_what_runs_and_drops_what_waits() -> None:
    before = set(threading.enumerate())
    pool: ReadQueue[str, str] = ReadQueue(places=1)
    running, waiting = ask(pool, Job("a")), ask(pool, Job("b"))
    pool.close()
    assert cancelled(running)
    assert cancelled(waiting)
    assert set(threading.enumerate()) <= before
    with pytest.raises(TorchCompilePluginError):
        ask(pool, Job("c"))
