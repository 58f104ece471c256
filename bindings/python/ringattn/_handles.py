"""Handles of the library as Python objects: who owns whom, and when they end."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

from . import core
from .errors import BusyError, ClosedError


def _end(destroy, pointer, pid, parent):
    # A forked child inherits handles that are not its own. `parent` is here so that it lives until now.
    del parent
    if os.getpid() == pid:
        destroy(pointer)


class Handle:
    """One handle. Closing it closes what was made from it first; forgetting it closes it too, also at exit."""

    def __init__(self, pointer, destroy, parent: Handle | None = None):
        self._handle = pointer
        self._parent = parent
        self._children: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._running = 0  # executions under way
        self._finalizer = weakref.finalize(self, _end, destroy, pointer, os.getpid(), parent)
        if parent is not None:
            parent._children.add(self)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def _pointer(self):
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self) -> None:
        """Ends this handle and everything that was made from it. A second call does nothing."""
        if self._running:
            raise BusyError(f"this {type(self).__name__} is in use by another thread; wait for it before closing it")
        for child in list(self._children):
            child.close()
        self._finalizer()

    def __enter__(self):
        self._pointer  # noqa: B018 - refuses a closed one
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: it belongs to this process; make another one there"
        )


@contextlib.contextmanager
def in_use(*handles: Handle):
    """While the library works with them, they are not to be closed."""
    for handle in handles:
        handle._running += 1
    try:
        yield
    finally:
        for handle in handles:
            handle._running -= 1


class Context(Handle):
    """A device and the threads that compute on it.

    threads: how many compute, the caller's included; 0 = one for each core that this process may use.
    progress_thread: a thread of the library advances executions, also while nobody waits for them.
    """

    def __init__(self, threads: int = 0, progress_thread: bool = False):
        desc = core.context_desc()
        desc.threads = threads
        desc.progress_thread = int(progress_thread)
        super().__init__(core.context_create(desc), core.context_destroy)


_default: dict[int, Context] = {}
_lock = threading.Lock()


def default_context() -> Context:
    """The context that is used where none is given: one a process, made when first needed."""
    with _lock:
        context = _default.get(os.getpid())
        if context is None or context.closed:
            _default.clear()
            context = _default[os.getpid()] = Context()
        return context


def _after_fork():
    global _lock
    _lock = threading.Lock()  # the thread that held it may not exist here


os.register_at_fork(after_in_child=_after_fork)
