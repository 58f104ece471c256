"""Who owns which token, in numbers that can be checked by hand; and what a plan tells."""

import numpy as np
import pytest
import ringattn
import torch


@pytest.mark.parametrize("partition, want", [
    ("contiguous", [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]), ("striped", [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
    ("zigzag", [[0, 1, 9], [2, 3, 8], [4, 7], [5, 6]]),
])  # fmt: skip
def test_ten_positions_on_four_ranks(partition, want):
    assert [ringattn.positions(10, rank, 4, partition=partition).tolist() for rank in range(4)] == want


@pytest.mark.parametrize("partition, rank, want", [
    ("contiguous", 0, [1, 2, 3, 4]), ("zigzag", 0, [1, 2, 15, -100]), ("zigzag", 3, [7, 8, 9, 10]),
    ("striped", 3, [4, 8, 12, -100]),
])  # fmt: skip
def test_b088_labels_are_shifted_before_they_are_cut(partition, rank, want):
    ids = torch.arange(16)[None]
    assert ringattn.shard(ringattn.next_token_labels(ids), rank, 4, partition=partition)[0].tolist() == want
    assert ringattn.shard(ringattn.next_token_labels(ids.numpy()), rank, 4, partition=partition)[0].tolist() == want


def test_labels_end_with_each_document():
    assert ringattn.next_token_labels(torch.arange(6)[None], cu_seqlens=[0, 2, 5])[0].tolist() == [
        1,
        -100,
        3,
        4,
        -100,
        -100,
    ]


def test_b096_documents_cut_each_by_itself_are_balanced():
    cut = ringattn.Sharding(16, 2, partition="zigzag", cu_seqlens=[0, 4, 16])
    assert cut.positions(0).tolist() == [0, 3, 0, 1, 2, 9, 10, 11] and cut.positions(1).tolist() == [1, 2, *range(3, 9)]
    problem = ringattn.Problem(
        seq_q=16, seq_k=16, heads=1, head_dim_qk=1, mask="causal", partition="zigzag", scope="document", max_sequences=2
    )
    call = ringattn.Call([0, 4, 16])
    assert [ringattn.Preview(problem, rank, 2).info(call)["pairs"] for rank in range(2)] == [44, 44]


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.bool_, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("partition", ["contiguous", "striped", "zigzag"])
def test_shard_and_unshard_of_any_type(kind, partition):
    whole = torch.arange(33).reshape(1, 11, 3)
    whole = whole.to(kind) if isinstance(kind, torch.dtype) else whole.numpy().astype(kind)
    parts = [ringattn.shard(whole, rank, 4, partition=partition) for rank in range(4)]
    again = ringattn.unshard(parts, partition=partition)
    assert again.dtype == whole.dtype and bool((again == whole).all())


def test_shard_of_torch_is_differentiable():
    x = torch.ones(1, 8, 2, requires_grad=True)
    ringattn.shard(x, 1, 2).sum().backward()
    assert x.grad[0, :, 0].tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_plan_shards_like_the_library(kind):
    plan = ringattn.Preview(ringattn.Problem(seq_q=10, seq_k=10, heads=1, head_dim_qk=1, partition="zigzag"), 0, 4)
    whole = np.arange(20, dtype=np.float32).reshape(1, 10, 2, 1)
    whole = torch.from_numpy(whole) if kind == "torch" else whole
    parts = [plan.shard(whole, rank=rank) for rank in range(4)]
    assert [p[0, :, 0, 0].tolist() for p in parts][0] == [0, 2, 18] and type(parts[0]) is type(whole)
    assert bool((plan.unshard(parts) == whole).all())


def test_what_a_plan_tells(ring):
    group = ring(2)
    plans = ringattn.PlanGroup.create(
        group, ringattn.Problem(seq_q=8, seq_k=8, heads=2, head_dim_qk=4, mask="causal", trace=True)
    )
    x = np.ones((1, 4, 2, 4), np.float32)
    plans.forward([x, x], [x, x], [x, x])
    assert sum(plan.info()["pairs"] for plan in plans) == 36 * 2
    assert plans[0].times()["total_ns"] > 0 and plans[0].events() and "zigzag" not in plans[0].describe()
    assert plans[0].operations() and plans[1].local_length("key") == 4


def test_explicit_runs(ring):
    group = ring(2)
    problem = ringattn.Problem(seq_q=6, seq_k=6, heads=1, head_dim_qk=1, partition="explicit")
    runs = [[(0, 2), (4, 1)], [(2, 2), (5, 1)]]
    plans = ringattn.PlanGroup.create(group, [problem.replace(runs_k=r) for r in runs])
    assert [plan.positions()[0].tolist() for plan in plans] == [[0, 1, 4], [2, 3, 5]]
    x = np.ones((1, 3, 1, 1), np.float32)
    assert all((o == 1).all() for o, _ in plans.forward([x, x], [x, x], [x, x]))


def test_supports_says_why():
    problem = ringattn.Problem(seq_q=8, seq_k=8, heads=4, head_dim_qk=8)
    assert ringattn.supports(problem)
    refused = ringattn.supports(problem.replace(kv_heads=3))
    assert not refused and "kv_heads" in refused.reason
