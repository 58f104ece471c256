"""`attend`: one call from arrays to arrays, over plans that are kept; and `merge` of partial results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from . import _arrays, core
from ._handles import Context, default_context
from .comm import Comm, Group, answering_peers, local_group
from .plan import Plan, PlanGroup
from .problem import Call, Problem

KEPT_PLANS = 16  # of one comm; the one that was not used for longest goes


def plan_for(comm: Comm | Group, problem: Problem) -> Plan | PlanGroup:
    """A plan that the comm keeps for this problem: made at its first use, which is collective. All ranks ask for the
    same problems in the same order, so that they make and drop the same plans."""
    plans: OrderedDict = comm._plans
    plan = plans.get(problem)
    closed = plan is not None and (plan[0].closed if isinstance(plan, PlanGroup) else plan.closed)
    if plan is None or closed:
        plan = PlanGroup.create(comm, problem) if isinstance(comm, Group) else Plan(comm, problem)
        plans[problem] = plan
    plans.move_to_end(problem)
    while len(plans) > KEPT_PLANS:
        plans.popitem(last=False)[1].close()
    return plan


_alone = threading.local()


def comm_alone() -> Comm:
    """A ring of one rank, on the default context; each thread has its own, as collective calls on a comm come from one."""
    context = default_context()
    group = getattr(_alone, "group", None)
    if group is None or group[0].closed or group.context is not context:
        group = _alone.group = local_group(1, context=context)
    return group[0]


def window_of(window) -> tuple[int | None, int | None]:
    """(left, right) out of None, one number for the left side, or a pair with None = unbounded."""
    if window is None:
        return None, None
    if hasattr(window, "__index__"):
        return window.__index__(), None
    if not isinstance(window, Sequence) or len(window) != 2:
        raise ValueError(f"window is {window!r}; expected an integer (keys to the left) or a pair (left, right)")
    return tuple(window)


def attend(
    q, k, v, *,
    comm: Comm | Group | None = None,
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
    dtype: str | None = None,
    dtype_out: str | None = None,
    return_lse: bool = False,
):  # fmt: skip
    """softmax(scale * q k^T + mask) v over a sequence that is sharded across the ranks of `comm`.

    q [batch, local q, heads, dim], k [batch, local k, kv_heads, dim], v [batch, local k, kv_heads, dim_v]: this rank's
    shards, of any kind (numpy, torch, jax, anything with DLPack or a buffer) and any strides from 0 on, read without a copy.
    Returns o [batch, local q, heads, dim_v] in the kind of q; with return_lse also lse [batch, heads, local q].

    comm: None = a ring of one: the arrays are the whole sequence. A Group: lists of shards, one a rank, and lists back.
    mask: "full" or "causal". window: keys to the left of a query that it sees besides itself, or (left, right).
    partition, stripe, scope, query_cut: which rank owns which token (ringattn.Problem).
    seq: length of the whole sequence, or (queries, keys); None = local length x ranks, right where all shards are equal.
    cu_seqlens_q, cu_seqlens_k: packed documents. max_sequences: the most that later calls have (None = these).
    layout: order of the axes: "bshd", "bhsd", "sbhd", "thd". dtype="bfloat16": arrays of uint16 hold that.

    Collective: every rank of the comm makes the same call. Plans are kept by the comm; the first call makes one.
    """
    comm = comm if comm is not None else comm_alone()
    if not isinstance(comm, (Comm, Group)):
        raise TypeError(f"comm is {comm!r}; expected a Comm, a Group or None")
    many = isinstance(comm, Group)
    with answering_peers(comm):
        first = _views(dict(q=q, k=k, v=v), len(comm) if many else None, layout, dtype)
        seq_q, seq_k = _lengths(seq, first, comm.world_size, many)
        qs, ks, vs = (first[name][0].shape() for name in "qkv")
        left, right = window_of(window)
        call = None
        if cu_seqlens_q is not None or cu_seqlens_k is not None or query_offset is not None:
            call = Call(cu_seqlens_q, cu_seqlens_k, query_offset)
            max_sequences = max(max_sequences, call._call.sequences)
        problem = Problem(
            batch=qs[0], seq_q=seq_q, seq_k=seq_k, heads=qs[2], kv_heads=ks[2], head_dim_qk=qs[3], head_dim_v=vs[3],
            dtype=_arrays.DTYPE_NAMES[first["q"][0].dtype()], dtype_out=dtype_out, mask=mask, window_left=left,
            window_right=right, scale=scale, partition=partition, stripe=stripe, scope=scope, query_cut=query_cut,
            max_sequences=max_sequences,
        )  # fmt: skip
    results = plan_for(comm, problem).forward(q, k, v, call=call, layout=layout, lse=return_lse, dtype=dtype)
    if return_lse:
        return tuple(map(list, zip(*results))) if many else results
    return [o for o, _ in results] if many else results[0]


def _views(arrays: dict, count: int | None, layout: str, dtype: str | None) -> dict[str, list[core.View]]:
    """Views of the arrays; of lists of `count` shards, one a rank of a Group, or of single ones (None)."""
    axes, number = _arrays.axes_of(layout), _arrays.dtype_number("dtype", dtype)
    for name, entries in arrays.items():
        if count is not None and (not isinstance(entries, (list, tuple)) or len(entries) != count):
            raise ValueError(f"{name} is not a list of {count} shards; expected one a rank of the Group")
    return {
        name: [_arrays.view(x, name, axes, dtype=number) for x in ([entries] if count is None else entries)]
        for name, entries in arrays.items()
    }


def _lengths(seq, views: dict, world_size: int, many: bool) -> tuple[int, int]:
    if seq is None:
        local = [[view.shape()[1] for view in views[name]] for name in ("q", "k")]
        return tuple(sum(lengths) if many else lengths[0] * world_size for lengths in local)
    pair = tuple(seq) if isinstance(seq, Sequence) else (seq, seq)
    if len(pair) != 2:
        raise ValueError(f"seq is {seq!r}; expected a length or a pair (queries, keys)")
    return pair


def merge(
    o_a,
    lse_a,
    o_b,
    lse_b,
    *,
    layout: str = "bshd",
    dtype_out: str | None = None,
    out=None,
    out_lse=None,
    context: Context | None = None,
):
    """(o, lse) of attention over two disjoint sets of keys, for the same queries, from the results over each.

    o: in the order of `layout`; lse [batch, heads, seq], float32, natural log; a row with lse = -inf is empty. dtype_out:
    None = of o_a. out and out_lse may be o_a and lse_a (in place)."""
    axes = _arrays.axes_of(layout)
    a, b = _arrays.view(o_a, "o_a", axes), _arrays.view(o_b, "o_b", axes)
    la = _arrays.view(lse_a, "lse_a", _arrays.lse_axes(axes), lse=True)
    lb = _arrays.view(lse_b, "lse_b", _arrays.lse_axes(axes), lse=True)
    sizes = dict(zip("bshd", a.shape()))
    number = _arrays.dtype_number("dtype_out", dtype_out) or a.dtype()
    o = _arrays.empty(_arrays.shape_for(axes, sizes), number, o_a) if out is None else out
    lse = (
        _arrays.empty(_arrays.shape_for(_arrays.lse_axes(axes), sizes), core.DTYPE_F32, o_a)
        if out_lse is None
        else out_lse
    )
    core.merge(
        (context or default_context())._pointer,
        a,
        la,
        b,
        lb,
        _arrays.view(o, "out", axes, writable=True),
        _arrays.view(lse, "out_lse", _arrays.lse_axes(axes), lse=True, writable=True),
    )
    return _arrays.finish(o, o_a), _arrays.finish(lse, o_a)
