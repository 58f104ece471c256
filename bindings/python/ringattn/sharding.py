"""Which rank owns which token, for arrays of any shape and type: token ids, labels, activations."""

from __future__ import annotations

import functools
import os
import sys

import numpy as np

from . import _arrays
from .plan import Preview
from .problem import Call, Problem


class Sharding:
    """How one sequence axis is cut. Equal arguments give equal shards on every rank, without a comm.

    seq: length of the whole axis. partition: "contiguous", "striped" (stripe) or "zigzag". cu_seqlens: packed documents;
    each is then cut by itself (scope="document"), or the row as a whole with scope="call" or "capacity".
    """

    def __init__(
        self,
        seq: int,
        world_size: int,
        *,
        partition: str = "zigzag",
        stripe: int = 0,
        scope: str | None = None,
        cu_seqlens=None,
    ):
        numbers = None if cu_seqlens is None else tuple(_arrays.integers("cu_seqlens", cu_seqlens))
        self.seq, self.world_size, self.partition, self.stripe = seq, world_size, partition, stripe
        self.scope = scope or ("capacity" if cu_seqlens is None else "document")
        self.cu_seqlens = numbers
        self.total = seq if numbers is None or self.scope == "capacity" else numbers[-1]
        self._plan, self._call = _preview(seq, world_size, partition, stripe, self.scope, numbers, os.getpid())

    def index(self, rank: int) -> np.ndarray:
        """int64 [local]: where in the row this rank's tokens are."""
        return self._plan.positions("key", rank, call=self._call)[0].copy()

    def positions(self, rank: int) -> np.ndarray:
        """int64 [local]: their positions in their own documents, for RoPE."""
        return self._plan.positions("key", rank, call=self._call)[1].copy()

    def local_length(self, rank: int) -> int:
        return self._plan.local_length("key", rank, call=self._call)

    def shard(self, array, rank: int, axis: int = 1):
        """This rank's entries along an axis of any array (torch: differentiable). A copy."""
        size = array.shape[axis]
        if size < self.total:
            raise ValueError(f"axis {axis} of the array has {size} entries; expected {self.total}, the whole sequence")
        return _take(array, self.index(rank), axis)

    def unshard(self, shards, axis: int = 1):
        """The whole axis again, from the shards of all ranks in rank order."""
        if len(shards) != self.world_size:
            raise ValueError(f"shards has {len(shards)} entries; expected {self.world_size}, one a rank")
        index = [self.index(rank) for rank in range(self.world_size)]
        for rank, (shard, own) in enumerate(zip(shards, index)):
            if shard.shape[axis] < len(own):
                raise ValueError(f"shards[{rank}] has {shard.shape[axis]} entries on axis {axis}; expected {len(own)}")
        parts = [_take(shard, np.arange(len(own)), axis) for shard, own in zip(shards, index)]
        order = np.argsort(np.concatenate(index), kind="stable")
        return _take(_concatenate(parts, axis), order, axis)


@functools.lru_cache(maxsize=64)
def _preview(
    seq, world_size, partition, stripe, scope, cu_seqlens, pid
):  # handles do not survive a fork, so the process counts
    problem = Problem(
        seq_q=seq,
        seq_k=seq,
        heads=1,
        head_dim_qk=1,
        partition=partition,
        stripe=stripe,
        scope=scope,
        max_sequences=1 if cu_seqlens is None else max(1, len(cu_seqlens) - 1),
    )
    return Preview(problem, 0, world_size), None if cu_seqlens is None else Call(cu_seqlens)


def _take(array, index: np.ndarray, axis: int):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.index_select(axis, torch.from_numpy(index).to(array.device))
    return array.take(index, axis=axis)


def _concatenate(parts, axis: int):
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(parts[0], torch.Tensor):
        return torch.cat(list(parts), dim=axis)
    if jax is not None and isinstance(parts[0], jax.Array):
        return jax.numpy.concatenate(parts, axis=axis)
    return np.concatenate(parts, axis=axis)


def shard(
    array,
    rank: int,
    world_size: int,
    *,
    axis: int = 1,
    partition: str = "zigzag",
    stripe: int = 0,
    scope: str | None = None,
    cu_seqlens=None,
):
    """One rank's part of an array along its sequence axis (Sharding has the words)."""
    whole = array.shape[axis]
    return Sharding(whole, world_size, partition=partition, stripe=stripe, scope=scope, cu_seqlens=cu_seqlens).shard(
        array, rank, axis
    )


def unshard(
    shards, *, axis: int = 1, partition: str = "zigzag", stripe: int = 0, scope: str | None = None, cu_seqlens=None
):
    """The whole array from the parts of all ranks."""
    whole = sum(part.shape[axis] for part in shards)
    return Sharding(whole, len(shards), partition=partition, stripe=stripe, scope=scope, cu_seqlens=cu_seqlens).unshard(
        shards, axis
    )


def positions(
    seq: int,
    rank: int,
    world_size: int,
    *,
    partition: str = "zigzag",
    stripe: int = 0,
    scope: str | None = None,
    cu_seqlens=None,
) -> np.ndarray:
    """int64 [local]: positions of a rank's tokens in their own documents, for RoPE."""
    return Sharding(seq, world_size, partition=partition, stripe=stripe, scope=scope, cu_seqlens=cu_seqlens).positions(
        rank
    )


def next_token_labels(input_ids, *, axis: int = 1, cu_seqlens=None, ignore_index: int = -100):
    """Labels for predicting the next token, shifted BEFORE the sequence is cut: token i's label is token i + 1, and the
    last token of each document has none. Shifting a shard instead would lose a label at each of its edges."""
    size = input_ids.shape[axis]
    rolled = np.arange(1, size + 1)
    last = np.zeros(size, dtype=bool)
    ends = [size] if cu_seqlens is None else _arrays.integers("cu_seqlens", cu_seqlens)[1:] + [size]
    for end in ends:
        if end > 0:
            last[end - 1] = True
    rolled[size - 1 :] = 0
    labels = _take(input_ids, rolled, axis)
    torch = sys.modules.get("torch")
    where = [None] * len(labels.shape)
    where[axis] = slice(None)
    if torch is not None and isinstance(labels, torch.Tensor):
        return labels.masked_fill(torch.from_numpy(last)[tuple(where)].to(labels.device), ignore_index)
    return np.where(last[tuple(where)], ignore_index, labels)
