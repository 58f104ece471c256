"""Gradients: Plan.backward and ringattn.torch against torch's autograd in float64."""

import pytest
import ringattn
import ringattn.torch
import torch
from conftest import run_ranks
from oracle import LIMIT, attention, close, documents, visible
from test_forward import PARTITIONS, data


def want_gradients(q, k, v, seen, d_o, d_lse=None, scale=None):
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    o, lse = attention(*leaves, seen, scale)
    loss = (o * d_o.double()).sum()
    if d_lse is not None:
        loss = loss + (lse.masked_fill(lse == -torch.inf, 0) * d_lse.double()).sum()
    return torch.autograd.grad(loss, leaves)


def ring_gradients(group, q, k, v, d_o, d_lse, cut, **options):
    """One thread a rank, each with leaves of its own; gradients put together again."""

    def rank(comm):
        r = comm.rank
        leaves = [cut.shard(x, r).requires_grad_() for x in (q, k, v)]
        o, lse = ringattn.torch.attend(*leaves, comm=comm, partition=cut.partition, return_lse=True, **options)
        loss = (o.float() * cut.shard(d_o, r).float()).sum()
        if d_lse is not None:
            loss = loss + (lse * cut.shard(d_lse, r, axis=2)).sum()
        loss.backward()
        return [x.grad for x in leaves]

    parts = run_ranks(group, rank)
    return [cut.unshard([p[i] for p in parts]) for i in range(3)]


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("with_lse", [False, True])
def test_gradients_over_a_ring(ring, partition, with_lse):
    q, k, v = data(2, 21, 4, 2, 16, 8)
    d_o, d_lse = torch.randn(2, 21, 4, 8), torch.randn(2, 4, 21) if with_lse else None
    cut = ringattn.Sharding(21, 3, partition=partition)
    got = ring_gradients(ring(3), q, k, v, d_o, d_lse, cut, mask="causal", seq=21)
    for have, want in zip(got, want_gradients(q, k, v, visible(21, 21, causal=True), d_o, d_lse)):
        close(have, want, 1e-4)


@pytest.mark.parametrize("dtype", list(LIMIT))
def test_gradients_come_in_the_type_of_the_inputs(dtype):
    q, k, v = data(1, 12, 2, 1, 8, dtype=dtype)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    d_o = torch.randn(1, 12, 2, 8).to(dtype)
    ringattn.torch.attend(*leaves).backward(d_o)
    for have, want in zip(leaves, want_gradients(q, k, v, visible(12, 12), d_o)):
        assert have.grad.dtype == dtype
        close(have.grad, want, 2 * LIMIT[dtype] if dtype != torch.float32 else 1e-4)


def test_documents_and_scale_have_gradients():
    cu = [0, 4, 9, 16]
    q, k, v = data(1, 16, 2, 2, 8)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    d_o = torch.randn(1, 16, 2, 8)
    ringattn.torch.attend(*leaves, mask="causal", cu_seqlens_q=torch.tensor(cu, dtype=torch.int32), scale=0.7).backward(
        d_o
    )
    for have, want in zip(leaves, want_gradients(q, k, v, documents(cu, cu, 16, 16, causal=True), d_o, scale=0.7)):
        close(have.grad, want, 1e-4)


def test_plan_backward_without_autograd():
    q, k, v = data(1, 10, 2, 2, 8)
    d_o = torch.randn(1, 10, 2, 8)
    with ringattn.local_group(1) as group:
        plan = ringattn.Plan(group[0], ringattn.Problem(seq_q=10, seq_k=10, heads=2, head_dim_qk=8, backward=True))
        o, lse = plan.forward(q, k, v)
        got = plan.backward(q, k, v, o, lse, d_o)
    for have, want in zip(got, want_gradients(q, k, v, visible(10, 10), d_o)):
        close(have, want, 1e-4)


def test_b090_gradient_of_zero_is_zero_and_finite(ring):
    """A rank whose own loss is empty still takes part; where every loss is empty, gradients are exactly 0."""
    q, k, v = data(1, 8, 1, 1, 4)
    cut = ringattn.Sharding(8, 2)
    for quiet in (torch.zeros(1, 8, 1, 4), cut.unshard([torch.ones(1, 4, 1, 4), torch.zeros(1, 4, 1, 4)])):
        got = ring_gradients(ring(2), q, k, v, quiet, None, cut, mask="causal", seq=8)
        for have, want in zip(got, want_gradients(q, k, v, visible(8, 8, causal=True), quiet)):
            close(have, want, 1e-5)
            assert quiet.any() or not have.any()


@pytest.mark.parametrize("given", ["q", "k", "v", "qk", "qv", "kv", "qkv"])
def test_any_subset_of_inputs_may_require_gradients(given):
    q, k, v = data(1, 6, 1, 1, 4)
    leaves = [x.requires_grad_(name in given) for x, name in zip((q, k, v), "qkv")]
    ringattn.torch.attend(*leaves).sum().backward()
    assert [x.grad is not None for x in leaves] == [name in given for name in "qkv"]
