"""What can go wrong. The class says what is broken now, the message which value it was and what was expected.

    Error
      CallError       this call failed, nothing changed: mend the arguments and call again
      RequestError    this execution failed on every rank; the comm is intact
      CommError       the comm is dead: close it and build a new one
      ContextError    the context is dead

Each is also the builtin exception that Python people would catch (ValueError, MemoryError, TimeoutError ...).
"""

from __future__ import annotations


class Error(Exception):
    """Base of all. ``status`` is the library's number, ``message`` its one line."""

    status: int = 0

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status

    def __reduce__(self):
        return type(self), (self.message, self.status)


class CallError(Error):
    """Status -1 to -99: nothing changed and no output was written."""


class RequestError(Error):
    """Status -100 to -199: the same on all ranks; the next call may follow at once."""


class CommError(Error):
    """Status -200 to -299: the comm cannot be used any more."""


class ContextError(Error):
    """Status -300 to -399: the context cannot be used any more."""


class InvalidArgumentError(CallError, ValueError):
    status = -1


class UnsupportedError(CallError, NotImplementedError):
    status = -2


class OutOfMemoryError(CallError, MemoryError):
    status = -3


class StructSizeError(CallError):
    status = -4


class NotFoundError(CallError, LookupError):
    status = -5


class BusyError(CallError):
    status = -6


class ForkedError(CallError):
    status = -7


class RankMismatchError(RequestError, ValueError):
    status = -100


class PeerRefusedError(RequestError):
    status = -101


class CanceledError(RequestError):
    status = -102


class TransportError(CommError, ConnectionError):
    status = -200


class PeerLostError(CommError, ConnectionError):
    status = -201


class RankTimeoutError(CommError, TimeoutError):
    status = -202


class AbortedError(CommError):
    status = -203


class DeviceError(ContextError):
    status = -300


class InternalError(ContextError):
    status = -301


class ClosedError(CallError, ValueError):
    """The Python object has been closed."""

    status = -1


_by_status = {
    kind.status: kind
    for kind in (
        InvalidArgumentError, UnsupportedError, OutOfMemoryError, StructSizeError, NotFoundError, BusyError, ForkedError,
        RankMismatchError, PeerRefusedError, CanceledError, TransportError, PeerLostError, RankTimeoutError, AbortedError,
        DeviceError, InternalError,
    )
}  # fmt: skip
_by_range = {0: CallError, 1: RequestError, 2: CommError, 3: ContextError}


def from_status(status: int, message: str) -> Error:
    """The exception of a status; one that this version does not know is judged by its range."""
    kind = _by_status.get(status) or _by_range.get(-status // 100, Error)
    return kind(message, status)
