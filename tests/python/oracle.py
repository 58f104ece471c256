"""Attention by its definition, in float64 on one machine: shares no code with the library."""

import torch


def visible(sq, sk, *, causal=False, left=None, right=None, offset=None):
    """bool [sq, sk]: key j is seen by query i."""
    p = torch.arange(sq)[:, None] + (sk - sq if offset is None else offset)
    j = torch.arange(sk)[None, :]
    seen = torch.ones(sq, sk, dtype=torch.bool)
    if causal:
        seen &= j <= p
    if right is not None:
        seen &= j <= p + right
    if left is not None:
        seen &= j >= p - left
    return seen


def documents(cu_q, cu_k, sq, sk, **mask):
    """bool [sq, sk]: block diagonal, each document with its own mask; padding sees nothing."""
    seen = torch.zeros(sq, sk, dtype=torch.bool)
    for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        seen[a:b, c:d] = visible(b - a, d - c, **mask)
    return seen


def attention(q, k, v, seen, scale=None):
    """o [b, s, h, dv] and lse [b, h, s] in float64, differentiable; rows that see nothing are 0 and -inf."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    s = s.masked_fill(~seen, -torch.inf)
    empty = ~seen.any(dim=-1)
    lse = torch.logsumexp(s.masked_fill(empty[:, None], 0.0), dim=-1)
    p = torch.exp(s - lse[..., None]).masked_fill(empty[:, None], 0.0)
    o = torch.einsum("bhqk,bkhd->bqhd", p, v)
    return o, lse.masked_fill(empty, -torch.inf)


# Largest error for values of order 1: a few roundings of the type itself.
LIMIT = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def close(got, want, limit):
    got, want = got.double(), want.double()
    assert got.shape == want.shape
    same = (got == want) | ((got - want).abs() <= limit * (1 + want.abs()))
    assert same.all(), f"largest error {(got - want).abs().nan_to_num().max():.3g}, limit {limit}"
