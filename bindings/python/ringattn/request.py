"""Executions that go on while their caller does something else."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import core
from .errors import Error

SLICE_MS = 200  # of a wait; between two of them Python hears Ctrl-C


def _end(pointer, plans, arguments, pid: int) -> None:
    # `arguments` hold the arrays, which the library uses until here. An unfinished request is canceled and waited for.
    del arguments
    if os.getpid() == pid:
        core.request_destroy(pointer)
    for plan in plans:
        plan._running -= 1


class Request:
    """An execution under way, of one rank or of several in one process; `start_forward` and `start_backward` make it.

    Its arrays are not to be changed before it is done; it keeps them alive. It advances inside `test` and `wait` of any
    request of its context, and by itself where the context has a progress thread. One thread at a time, but for `cancel`.
    Forgetting an unfinished request cancels it, on every rank.
    """

    def __init__(self, start: Callable, plans: Sequence, arguments: Sequence, results: Callable[[], Any]):
        self._plans, self._results = tuple(plans), results
        self._outcome: Any = None
        self._failure: Error | None = None
        for plan in self._plans:
            plan._running += 1
        try:
            self._handle = start([plan._pointer for plan in self._plans], [one.args for one in arguments])
        except BaseException:
            for plan in self._plans:
                plan._running -= 1
            raise
        self._lock = threading.Lock()  # cancel against the end
        self._finalizer = weakref.finalize(self, _end, self._handle, self._plans, arguments, os.getpid())

    @property
    def done(self) -> bool:
        """Has it ended, well or badly, as far as test and wait have seen?"""
        return not self._finalizer.alive

    def test(self) -> bool:
        """Advances it a little, without blocking. True once it is done; raises what it has failed with."""
        return self._advance(lambda: core.request_test(self._handle))

    def wait(self, timeout: float | None = None):
        """The results, once it is done. TimeoutError after `timeout` seconds: it then goes on, and may be waited for again.
        Raises what it has failed with. Ctrl-C aborts the ring."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._advance(lambda: core.request_wait(self._handle, _slice_ms(end))):
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(
                        f"the execution is not done after {timeout} s; it goes on, and may be waited for again"
                    )
        except (Error, TimeoutError):
            raise
        except BaseException:
            for plan in self._plans:
                plan.comm.abort("interrupted")
            self._finish()
            raise
        return self._outcome

    def cancel(self) -> None:
        """Asks for its end on every rank; any thread. `wait` then raises CanceledError, but on ranks whose part is done."""
        with self._lock:
            if not self.done:
                core.request_cancel(self._handle)

    def _advance(self, call: Callable) -> bool:
        if not self.done:
            try:
                if call() is not None:
                    return False
                self._outcome = self._results()
            except Error as error:
                self._failure = error
            self._finish()
        if self._failure is not None:
            raise self._failure
        return True

    def _finish(self) -> None:
        with self._lock:
            self._finalizer()

    def __reduce__(self):
        raise TypeError("a Request cannot be pickled or copied: it belongs to this process")

    def __repr__(self) -> str:
        return f"<ringattn.Request of {len(self._plans)} rank{'s'[: len(self._plans) != 1]}{', done' if self.done else ''}>"


def _slice_ms(end: float | None) -> int:
    return SLICE_MS if end is None else max(0, min(SLICE_MS, round((end - time.monotonic()) * 1000)))
