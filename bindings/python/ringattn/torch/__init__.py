"""ringattn for torch: attention with gradients, as one operator that torch.compile takes whole; and comms out of process
groups.

    comm = ringattn.torch.comm_from_group()            # any backend; one rank of a ring a process
    o = ringattn.torch.attend(q, k, v, comm=comm, mask="causal", partition="zigzag")
    o.sum().backward()                                 # collective, like attend itself
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .._handles import Context
from ..attention import window_of
from ..comm import Comm, Group, answering_peers
from . import _ops

__all__ = ["attend", "comm_from_group"]


def _lengths(name: str, values, like: torch.Tensor) -> torch.Tensor | None:
    if values is None:
        return None
    if not isinstance(values, torch.Tensor):
        values = torch.tensor(list(values), dtype=torch.int64)
    if values.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} has dtype {values.dtype}; expected int32 or int64")
    return values


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
    comm: Comm | None = None,
    mask: str = "full",
    window: int | tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    partition: str = "contiguous",
    stripe: int = 0,
    scope: str = "capacity",
    query_cut: str = "auto",
    seq: int | tuple[int, int] | None = None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    max_sequences: int = 0,
    query_offset: int | None = None,
    layout: str = "bshd",
    dtype_out: str = "",
    return_lse: bool = False,
):  # fmt: skip
    """ringattn.attend for tensors, with gradients through both o and lse. Arguments as there; no Group: with the ranks of
    one process, each rank's thread calls with its own comm.

    Backward is collective too: every rank calls it, in the same order. A rank whose own loss is empty still has to call
    backward, with zeros, or the others wait for it. Gradients come back in the type of q, k and v.
    """
    if isinstance(comm, Group):
        raise TypeError("comm is a Group; expected a Comm, one for each rank's thread (or use ringattn.attend)")
    if torch.compiler.is_compiling():  # which does not trace through the other ranks
        left, right, seq_q, seq_k = _checked(q, k, v, window, seq)
    else:
        with answering_peers(comm):
            left, right, seq_q, seq_k = _checked(q, k, v, window, seq)
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    o, lse = torch.ops.ringattn.attend(
        q, k, v, _lengths("cu_seqlens_q", cu_seqlens_q, q), _lengths("cu_seqlens_k", cu_seqlens_k, q), query_offset,
        _ops.ALONE if comm is None else comm._number, mask, left, right, scale,
        partition, stripe, scope, query_cut, seq_q, seq_k, max_sequences,
        dtype_out or "", layout, grad,
    )  # fmt: skip
    return (o, lse) if return_lse else o


def _checked(q, k, v, window, seq) -> tuple[int, int, int, int]:
    """(left, right, queries, keys) in the operators' integers; refuses tensors that no kernel takes."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"{name} has dtype {x.dtype}; expected float32, float16 or bfloat16")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {x.dtype}; expected {q.dtype}, that of q")
        if x.device.type not in ("cpu", "meta"):
            raise NotImplementedError(f"{name} is on {x.device}; expected the CPU: this version has no other kernels")
    left, right = window_of(window)
    pair = tuple(-1 if x is None else x for x in (seq if isinstance(seq, (tuple, list)) else (seq, seq)))
    return _bound("left", left), _bound("right", right), *pair


def _bound(side: str, value: int | None) -> int:
    if value is None:
        return _ops.UNBOUNDED
    if value < 0:
        raise ValueError(f"window: {side} is {value}; expected 0 or more, or None (unbounded)")
    return value


def comm_from_group(
    group: dist.ProcessGroup | None = None,
    *,
    context: Context | None = None,
    transport: str | None = None,
    timeout: float | None = None,
    arrival_timeout: float | None = None,
) -> Comm:
    """This process's comm of a ring over the ranks of a process group (None = the default one), of any backend: the group
    only carries three small messages now, by which the ranks find each other. Collective over the group."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("torch.distributed is not initialised; expected dist.init_process_group() before")
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the group; only its ranks may call comm_from_group")

    def allgather(own: bytes) -> list[bytes]:
        parts: list = [None] * world_size
        dist.all_gather_object(parts, own, group=group)
        return parts

    return Comm.from_allgather(
        allgather,
        rank,
        world_size,
        context=context,
        transport=transport,
        timeout=timeout,
        arrival_timeout=arrival_timeout,
    )
