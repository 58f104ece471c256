"""Exact attention over sequences too long for one device.

    o = ringattn.attend(q, k, v, comm=comm, mask="causal", partition="zigzag")

P ranks each hold a shard of the sequence; queries stay, blocks of keys and values go round a ring, and the result is
that of unsharded attention up to rounding. `Comm` is one rank's place in a ring, `Problem` what is to be computed,
`Plan` the two together. `ringattn.torch` has gradients, `ringattn.transformers` models.
"""

from ._handles import Context, default_context
from ._info import build_info, version
from .attention import attend, merge
from .comm import Comm, Group, UniqueId, local_group
from .errors import (
    AbortedError,
    BusyError,
    CallError,
    CanceledError,
    ClosedError,
    CommError,
    ContextError,
    DeviceError,
    Error,
    ForkedError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    PeerLostError,
    PeerRefusedError,
    RankMismatchError,
    RankTimeoutError,
    RequestError,
    StructSizeError,
    TransportError,
    UnsupportedError,
)  # fmt: skip
from .plan import Plan, PlanGroup, Preview, Support, supports
from .problem import Call, Problem
from .request import Request
from .sharding import Sharding, next_token_labels, positions, shard, unshard

__version__ = version()

__all__ = [
    "AbortedError", "BusyError", "Call", "CallError", "CanceledError", "ClosedError", "Comm", "CommError", "Context",
    "ContextError", "DeviceError", "Error", "ForkedError", "Group", "InternalError", "InvalidArgumentError", "NotFoundError",
    "OutOfMemoryError", "PeerLostError", "PeerRefusedError", "Plan", "PlanGroup", "Preview", "Problem", "RankMismatchError",
    "RankTimeoutError", "Request", "RequestError", "Sharding", "StructSizeError", "Support", "TransportError", "UniqueId",
    "UnsupportedError", "attend", "build_info", "default_context", "local_group", "merge", "next_token_labels", "positions",
    "shard", "supports", "unshard", "version",
]  # fmt: skip
