"""Orders carried out where a scheduler of Dask says, which also tries again what a worker was killed at."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, as_completed
from contextlib import contextmanager

from tb_torchcompile_plugin.api.indexing.attempt import Attempted, attempt, failed
from tb_torchcompile_plugin.api.indexing.write import Order
from tb_torchcompile_plugin.errors import UserError

_log = logging.getLogger(__name__)
_PATIENCE_S = 30
_KILLED = "KilledWorker"  # the class is in distributed, which need not be there
_NOT_INSTALLED = "Run: pip install 'tb-torchcompile-plugin[cluster]'"


def on_cluster(orders: Iterable[Order], address: str) -> Generator[tuple[Order, Attempted], None, None]:
    """Each with its outcome, as they are done. What workers were killed at too often for the scheduler is read once
    more at the end, one after the other: others may have been to blame. Raises UserError where there is no scheduler,
    or none any more."""
    with _executor(address) as executor:
        running = {executor.submit(attempt, order): order for order in orders}
        lost: list[Order] = []
        for future in as_completed(running):
            if type(_error(future)).__name__ == _KILLED:
                lost.append(running[future])
            else:
                yield running[future], _outcome(future, running[future], address)
        for order in lost:
            yield order, _outcome(executor.submit(attempt, order), order, address)


def _error(future: Future[Attempted]) -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _outcome(future: Future[Attempted], order: Order, address: str) -> Attempted:
    try:
        return future.result()
    except CancelledError as error:
        raise UserError(
            f"the scheduler at {address} went away",
            next_step="What was written stays. Start it, then run this again: it goes on where it stopped",
        ) from error
    except Exception as error:  # a worker was killed too often, or cannot run this at all
        return failed(
            order,
            f"a worker of the cluster could not read it ({type(error).__name__}: {error})",
            "Look into the worker's log: has it this package, in this version, and enough memory?",
        )


@contextmanager
def _executor(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UserError(
            f"--scheduler needs a package that is not installed ({error})", next_step=_NOT_INSTALLED
        ) from error
    logging.getLogger("distributed").handlers[:] = [logging.NullHandler()]  # what matters is raised
    try:
        client = Client(address, timeout=_PATIENCE_S)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no scheduler of Dask answers at {address} ({error})",
            next_step="Give the address that `dask scheduler` prints, such as tcp://host:8786",
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            _log.warning("the scheduler at %s has no workers yet: waiting for some", address)
        yield client.get_executor(pure=False)
