"""A door for code that calls flash-attention: `flash_attn_func` and `flash_attn_varlen_func` with its signatures.

They attend over the ring that `use(comm, ...)` names for this thread (a ring of one without it). What a ring cannot
honour is refused with its value: dropout, ALiBi, soft caps, block tables, returned probabilities. `deterministic` may have
either value: results always are the same bit for bit."""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import dataclass

import torch

from . import torch as _torch
from ._arrays import integers
from .comm import Comm

__all__ = ["flash_attn_func", "flash_attn_varlen_func", "use"]


@dataclass(frozen=True)
class _Place:
    comm: Comm | None = None
    partition: str = "contiguous"
    stripe: int = 0
    seq: int | tuple[int, int] | None = None


_place: contextvars.ContextVar[_Place] = contextvars.ContextVar("ringattn_flash", default=_Place())  # noqa: B039 - frozen


@contextlib.contextmanager
def use(comm: Comm, *, partition: str = "contiguous", stripe: int = 0, seq: int | tuple[int, int] | None = None):
    """Calls inside it, on this thread, attend over `comm`; q, k and v are this rank's shards (ringattn.attend's words)."""
    token = _place.set(_Place(comm, partition, stripe, seq))
    try:
        yield
    finally:
        _place.reset(token)


def _refuse(**given) -> None:
    for name, (value, accepted, why) in given.items():
        if value != accepted:
            raise ValueError(f"{name} is {value!r}; expected {accepted!r}: {why}")


def _window(causal: bool, window_size) -> tuple[int | None, int | None]:
    left, right = window_size
    left = None if left < 0 else left
    right = None if right < 0 or (causal and right == 0) else right
    if causal:
        right = None  # flash-attention lets causal win over a window to the right
    return left, right


def _common(dropout_p, softcap, alibi_slopes, return_attn_probs) -> None:
    _refuse(
        dropout_p=(dropout_p, 0.0, "a ring has no common random state"),
        softcap=(softcap, 0.0, "scores are not capped"),
        return_attn_probs=(return_attn_probs, False, "probabilities are never kept; ringattn.torch.attend returns lse"),
    )
    if alibi_slopes is not None:
        raise ValueError("alibi_slopes is given; expected None: biases are not supported")


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """o [batch, seq, heads, dim] of q [batch, seq, heads, dim] and k, v [batch, seq, kv_heads, dim]."""
    _common(dropout_p, softcap, alibi_slopes, return_attn_probs)
    place = _place.get()
    return _torch.attend(
        q,
        k,
        v,
        comm=place.comm,
        mask="causal" if causal else "full",
        window=_window(causal, window_size),
        scale=softmax_scale,
        partition=place.partition,
        stripe=place.stripe,
        seq=place.seq,
    )


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """o [tokens, heads, dim] of packed q [tokens, heads, dim] and k, v [tokens, kv_heads, dim].

    Over a ring, cu_seqlens are those of the whole row, and each document is cut by itself (scope "document"); max_seqlen_q
    and max_seqlen_k only have to hold: longer documents are refused."""
    _common(dropout_p, softcap, alibi_slopes, return_attn_probs)
    if block_table is not None:
        raise ValueError("block_table is given; expected None: keys are not paged")
    for side, cu, most in (("q", cu_seqlens_q, max_seqlen_q), ("k", cu_seqlens_k, max_seqlen_k)):
        ends = integers(f"cu_seqlens_{side}", cu)
        longest = max((b - a for a, b in zip(ends, ends[1:])), default=0)
        if longest > most:
            raise ValueError(
                f"max_seqlen_{side} is {most}; expected at least {longest}, the longest sequence of cu_seqlens_{side}"
            )
    place = _place.get()
    seq = place.seq
    if seq is None and place.comm is not None:
        seq = integers("cu_seqlens_q", cu_seqlens_q)[-1], integers("cu_seqlens_k", cu_seqlens_k)[-1]
    return _torch.attend(
        q,
        k,
        v,
        comm=place.comm,
        mask="causal" if causal else "full",
        window=_window(causal, window_size),
        scale=softmax_scale,
        partition=place.partition,
        stripe=place.stripe,
        seq=seq,
        cu_seqlens_q=_host(cu_seqlens_q),
        cu_seqlens_k=_host(cu_seqlens_k),
        scope="capacity" if place.comm is None else "document",
        layout="thd",
    )


def _host(cu: torch.Tensor) -> torch.Tensor:
    return cu.cpu() if isinstance(cu, torch.Tensor) else torch.tensor(integers("cu_seqlens", cu))
