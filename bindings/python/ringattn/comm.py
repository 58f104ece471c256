"""Comms: one rank's place in a ring, and the ways to come to one."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from . import core
from ._handles import Context, Handle, default_context
from .errors import Error


def _milliseconds(name: str, seconds: float | None) -> int:
    if seconds is None:
        return 0
    if seconds == math.inf:
        return -1
    if not seconds > 0 or seconds * 1000 > 2**31 - 1:
        raise ValueError(f"{name} is {seconds!r}; expected seconds above 0, math.inf (never) or None (the default)")
    return max(1, round(seconds * 1000))


def _desc(world_size: int, transport: str | None, timeout: float | None, arrival_timeout: float | None):
    desc = core.comm_desc()
    desc.world_size = world_size
    desc.timeout_ms = _milliseconds("timeout", timeout)
    desc.arrival_timeout_ms = _milliseconds("arrival_timeout", arrival_timeout)
    desc.set_transport(transport)
    return desc


def interruptible(call: Callable, abort: Callable | None = None):
    """Runs a blocking call so that Ctrl-C reaches the caller. Python hears signals on the main thread alone, and not
    inside C: so there the call gets a thread of its own. `abort` ends it."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: list = []
    failure: list[BaseException] = []

    def body():
        try:
            result.append(call())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=body, name="ringattn-call", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        if abort is not None:
            abort()
            thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]


@contextlib.contextmanager
def answering_peers(comm: Comm | Group | None):
    """What Python refuses before a collective call must still be heard by the other ranks, or they would wait for this
    one: the library is asked for a plan that it refuses too."""
    try:
        yield
    except Error:
        raise  # the library has refused, on every rank
    except Exception:
        if isinstance(comm, Comm) and comm.world_size > 1 and not comm.closed:
            with contextlib.suppress(Error):
                interruptible(
                    lambda: core.plan_create(comm._pointer, core.plan_desc()), lambda: comm.abort("interrupted")
                )
        raise


_numbers = itertools.count(1)
by_number: weakref.WeakValueDictionary[int, Comm] = weakref.WeakValueDictionary()


class Comm(Handle):
    """One rank's place in a ring. Collective calls on it come from one thread at a time.

    Made by `local_group`, `from_environment`, `from_id`, `from_allgather`, or `ringattn.torch.comm_from_group`.

    transport: None = the best that can run; else its name ("local", "tcp", "ucx").
    timeout: seconds after which a rank without progress is lost, while others wait for it (60; math.inf = never).
    arrival_timeout: seconds to wait for a rank that has not entered a collective call (600; math.inf = never).
    """

    def __init__(self, pointer, context: Context):
        super().__init__(pointer, core.comm_destroy, context)
        self.rank, self.world_size = core.comm_rank(pointer)
        self.context = context
        self._plans: OrderedDict = OrderedDict()  # of attend()
        self._number = next(_numbers)  # stands for it where only plain values go, as in torch's operators
        by_number[self._number] = self

    @classmethod
    def from_environment(
        cls,
        *,
        world_size: int = 0,
        context: Context | None = None,
        transport: str | None = None,
        timeout: float | None = None,
        arrival_timeout: float | None = None,
    ) -> Comm:
        """This process's rank, from what a launcher has set: `ringattn run`, torchrun, mpirun or srun."""
        context = context or default_context()
        desc = _desc(world_size, transport, timeout, arrival_timeout)
        return cls(interruptible(lambda: core.comm_create_from_environment(context._pointer, desc)), context)

    @classmethod
    def from_id(
        cls,
        unique_id: UniqueId,
        rank: int,
        world_size: int,
        *,
        context: Context | None = None,
        transport: str | None = None,
        timeout: float | None = None,
        arrival_timeout: float | None = None,
    ) -> Comm:
        """Meets the other ranks at the process that made `unique_id`."""
        context = context or default_context()
        desc = _desc(world_size, transport, timeout, arrival_timeout)
        return cls(
            interruptible(lambda: core.comm_create_from_id(context._pointer, desc, rank, unique_id._id)), context
        )

    @classmethod
    def from_allgather(
        cls,
        allgather: Callable[[bytes], Sequence[bytes]],
        rank: int,
        world_size: int,
        *,
        context: Context | None = None,
        transport: str | None = None,
        timeout: float | None = None,
        arrival_timeout: float | None = None,
    ) -> Comm:
        """From any all-gather: `allgather(own)` gets this rank's bytes and returns those of all ranks, in rank order.

        With mpi4py: ``Comm.from_allgather(world.allgather, world.rank, world.size)``."""
        context = context or default_context()
        desc = _desc(world_size, transport, timeout, arrival_timeout)
        return cls(core.comm_create_from_allgather(context._pointer, desc, rank, allgather), context)

    def abort(self, reason: str | None = None) -> None:
        """Ends the ring at once, on all ranks; any thread. Every execution on it raises AbortedError."""
        core.comm_abort(self._pointer, reason)

    def check(self) -> None:
        """Raises what ended this comm; does nothing while it can be used. Any thread."""
        core.comm_status(self._pointer)

    def __repr__(self) -> str:
        return f"<ringattn.Comm rank {self.rank} of {self.world_size}{', closed' if self.closed else ''}>"


class Group(Sequence):
    """The ranks of a ring inside this process: a sequence of comms. Either a thread uses each, or one thread drives all
    of them: wherever a comm is expected, a Group is too, with a list of shards, one a rank, in place of each array."""

    def __init__(self, comms: Sequence[Comm]):
        self._comms = tuple(comms)
        self._plans: OrderedDict = OrderedDict()

    def __len__(self) -> int:
        return len(self._comms)

    def __getitem__(self, rank):
        return self._comms[rank]

    def __iter__(self) -> Iterator[Comm]:
        return iter(self._comms)

    @property
    def world_size(self) -> int:
        return len(self._comms)

    @property
    def context(self) -> Context:
        return self._comms[0].context

    def close(self) -> None:
        """Closes every comm."""
        for comm in self._comms:
            comm.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self) -> str:
        return f"<ringattn.Group of {len(self._comms)} ranks>"


def local_group(
    world_size: int,
    *,
    context: Context | None = None,
    transport: str | None = None,
    timeout: float | None = None,
    arrival_timeout: float | None = None,
) -> Group:
    """All ranks of a ring inside this process."""
    context = context or default_context()
    desc = _desc(world_size, transport, timeout, arrival_timeout)
    return Group([Comm(pointer, context) for pointer in core.comm_create_local(context._pointer, desc)])


class UniqueId:
    """Where the ranks of one ring meet. Whoever holds its text can join: carry it by a pipe, a broadcast or a file of
    mode 600, not by command lines or logs. The process that made it listens until all have met."""

    def __init__(self, world_size: int, *, context: Context | None = None, arrival_timeout: float | None = None):
        self._context: Context | None = context or default_context()
        self._id = core.unique_id()
        core.unique_id_create(self._context._pointer, _desc(world_size, None, None, arrival_timeout), self._id)

    @classmethod
    def from_text(cls, text: str) -> UniqueId:
        made = cls.__new__(cls)
        made._context, made._id = None, core.unique_id()
        core.unique_id_from_text(text, made._id)
        return made

    @property
    def text(self) -> str:
        return core.unique_id_to_text(self._id)

    def __repr__(self) -> str:  # not the secret
        return "<ringattn.UniqueId>"

    def __reduce__(self):
        return UniqueId.from_text, (self.text,)
