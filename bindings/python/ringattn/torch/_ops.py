"""The operators `ringattn::attend` and `ringattn::attend_backward`: one node each in a traced graph.

A comm is no tensor: it goes in as the number under which it is registered here, with the problem as plain values; the
plan is made, or found, when the operator runs."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _arrays
from ..attention import comm_alone, plan_for
from ..comm import Comm, answering_peers, by_number
from ..errors import ClosedError
from ..problem import Call, Problem

UNBOUNDED = -1  # of a window, in the operators' integers
ALONE = 0  # number of a ring of one


def comm_of(number: int) -> Comm:
    comm = comm_alone() if number == ALONE else by_number.get(number)
    if comm is None:
        raise ClosedError(f"comm number {number} is no more; keep the Comm as long as graphs that use it")
    return comm


def _call(cu_q: Tensor | None, cu_k: Tensor | None, offset: int | None) -> Call | None:
    if cu_q is None and cu_k is None and offset is None:
        return None
    return Call(cu_q, cu_k, offset)


def _sizes(x: Tensor, axes: str) -> dict[str, int]:
    return {"b": 1} | dict(zip(axes, x.shape))


def _plan(q, k, v, cu_q, cu_k, query_offset, comm, mask, left, right, scale, partition, stripe, scope, query_cut, seq_q,
          seq_k, max_sequences, dtype_out, layout, backward):  # fmt: skip
    """(plan, what goes with each of its executions)."""
    axes = _arrays.axes_of(layout)
    sq, sk, sv = (_sizes(x, axes) for x in (q, k, v))
    ring = comm_of(comm)
    with answering_peers(ring):
        problem = Problem(
            batch=sq["b"], seq_q=seq_q if seq_q >= 0 else sq["s"] * ring.world_size,
            seq_k=seq_k if seq_k >= 0 else sk["s"] * ring.world_size,
            heads=sq["h"], kv_heads=sk["h"], head_dim_qk=sq["d"], head_dim_v=sv["d"], dtype=q.dtype, dtype_out=dtype_out or None,
            mask=mask, window_left=None if left == UNBOUNDED else left, window_right=None if right == UNBOUNDED else right,
            scale=scale, partition=partition, stripe=stripe, scope=scope, query_cut=query_cut,
            max_sequences=max(max_sequences, 0 if cu_q is None else cu_q.numel() - 1), backward=backward,
        )  # fmt: skip
    return plan_for(ring, problem), dict(call=_call(cu_q, cu_k, query_offset), layout=layout)


# The arguments that both operators share; they pass them on by position.
_WHAT = (
    "Tensor? cu_q, Tensor? cu_k, int? query_offset, int comm, str mask, int left, int right, float? scale, str partition, "
    "int stripe, str scope, str query_cut, int seq_q, int seq_k, int max_sequences, str dtype_out, str layout, bool grad"
)


@torch.library.custom_op(
    "ringattn::attend", mutates_args=(), schema=f"(Tensor q, Tensor k, Tensor v, {_WHAT}) -> (Tensor, Tensor)"
)
def attend_op(q, k, v, *what):
    plan, each = _plan(q, k, v, *what)
    return plan.forward(q.detach(), k.detach(), v.detach(), **each)


@torch.library.custom_op(
    "ringattn::attend_backward", mutates_args=(),
    schema=f"(Tensor d_o, Tensor d_lse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_WHAT}) -> (Tensor, Tensor, Tensor)",
)  # fmt: skip
def backward_op(d_o, d_lse, q, k, v, o, lse, *what):
    plan, each = _plan(q, k, v, *what)
    tensors = [x.detach() for x in (q, k, v, o, lse)]
    return plan.backward(*tensors, _innermost(d_o.detach()), d_lse=_innermost(d_lse.detach()), **each)


def _innermost(x: Tensor) -> Tensor:
    """Gradients come with any strides (those of a sum are all 0); the library wants the last one to be 1."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _out_dtype(q: Tensor, dtype_out: str):
    return getattr(torch, dtype_out) if dtype_out else q.dtype


@attend_op.register_fake
def _(q, k, v, *what):
    *_, dtype_out, layout, _ = what
    axes = _arrays.axes_of(layout)
    sizes = _sizes(q, axes)
    o = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=_out_dtype(q, dtype_out))
    lse = q.new_empty([sizes[axis] for axis in _arrays.lse_axes(axes)], dtype=torch.float32)
    return o, lse


@backward_op.register_fake
def _(d_o, d_lse, q, k, v, *_):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))


def _setup_context(ctx, inputs, output):
    q, k, v, cu_q, cu_k, *rest = inputs
    ctx.save_for_backward(q, k, v, *output, cu_q, cu_k)
    ctx.rest = rest


def _backward(ctx, d_o, d_lse):
    q, k, v, o, lse, cu_q, cu_k = ctx.saved_tensors
    if not ctx.rest[-1]:
        raise RuntimeError("ringattn::attend was called with grad=False; gradients need grad=True")
    d_o = torch.zeros_like(o) if d_o is None else d_o
    d_lse = torch.zeros_like(lse) if d_lse is None else d_lse
    gradients = torch.ops.ringattn.attend_backward(d_o, d_lse, q, k, v, o, lse, cu_q, cu_k, *ctx.rest)
    return (*gradients, *(None,) * (2 + len(ctx.rest)))


attend_op.register_autograd(_backward, setup_context=_setup_context)
