"""attend() against float64, over partitions, masks, kinds of heads, types and memory orders."""

import numpy as np
import pytest
import ringattn
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import LIMIT, attention, close, documents, visible

PARTITIONS = ["contiguous", "striped", "zigzag"]


def data(b, s, h, hk, d, dv=None, dtype=torch.float32, seed=0, sk=None):
    g = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=g).to(dtype)  # noqa: E731
    sk = s if sk is None else sk
    return make(b, s, h, d), make(b, sk, hk, d), make(b, sk, hk, dv or d)


def over_ring(group, q, k, v, partition, **options):
    """Whole arrays in and out: sharded, attended, put together again."""
    cut = ringattn.Sharding(q.shape[1], len(group), partition=partition)
    parts = [[cut.shard(x, r) for r in range(len(group))] for x in (q, k, v)]
    o, lse = ringattn.attend(*parts, comm=group, partition=partition, seq=q.shape[1], return_lse=True, **options)
    return cut.unshard(o), cut.unshard(lse, axis=2)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_ring_equals_unsharded_attention(ring, partition, mask, world_size):
    q, k, v = data(2, 37, 4, 2, 16, 24)
    o, lse = over_ring(ring(world_size), q, k, v, partition, mask=mask)
    want = attention(q, k, v, visible(37, 37, causal=mask == "causal"))
    close(o, want[0], LIMIT[torch.float32])
    close(lse, want[1], LIMIT[torch.float32])


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (6, 1)])
def test_query_heads_share_kv_heads(ring, heads, kv_heads):
    q, k, v = data(1, 20, heads, kv_heads, 8)
    o, _ = over_ring(ring(2), q, k, v, "zigzag", mask="causal")
    close(o, attention(q, k, v, visible(20, 20, causal=True))[0], LIMIT[torch.float32])


@pytest.mark.parametrize("window, left, right", [(3, 3, None), ((0, 0), 0, 0), ((None, 2), None, 2), ((5, 1), 5, 1)])
def test_window(ring, window, left, right):
    q, k, v = data(1, 23, 2, 2, 8)
    o, _ = over_ring(ring(3), q, k, v, "striped", window=window)
    close(o, attention(q, k, v, visible(23, 23, left=left, right=right))[0], LIMIT[torch.float32])


def test_causal_window(ring):
    q, k, v = data(1, 23, 2, 2, 8)
    o, _ = over_ring(ring(3), q, k, v, "contiguous", mask="causal", window=4)
    close(o, attention(q, k, v, visible(23, 23, causal=True, left=4))[0], LIMIT[torch.float32])


@pytest.mark.parametrize("partition", PARTITIONS)
def test_packed_documents_do_not_see_each_other(ring, partition):
    cu, total = [0, 5, 12, 13, 13, 30], 30
    q, k, v = data(1, total, 2, 1, 8)
    group = ring(3)
    cut = ringattn.Sharding(total, 3, partition=partition, cu_seqlens=cu)
    parts = [[cut.shard(x, r)[0] for r in range(3)] for x in (q, k, v)]
    o = ringattn.attend(
        *parts,
        comm=group,
        partition=partition,
        scope="document",
        mask="causal",
        cu_seqlens_q=cu,
        seq=total,
        layout="thd",
    )
    want, _ = attention(q, k, v, documents(cu, cu, total, total, causal=True))
    close(cut.unshard(o, axis=0), want[0], LIMIT[torch.float32])


def test_bottom_right_alignment_leaves_rows_without_keys():
    q, k, v = data(1, 5, 1, 1, 4, sk=2)
    o, lse = ringattn.attend(q, k, v, mask="causal", return_lse=True)
    want = attention(q, k, v, visible(5, 2, causal=True))
    close(o, want[0], LIMIT[torch.float32])
    assert torch.isneginf(lse[0, 0, :3]).all() and (o[0, :3] == 0).all()


def test_query_offset_is_the_position_of_the_first_query():
    q, k, v = data(1, 2, 1, 1, 4, sk=5)
    o = ringattn.attend(q, k, v, mask="causal", query_offset=0)
    close(o, attention(q, k, v, visible(2, 5, causal=True, offset=0))[0], LIMIT[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types(ring, dtype):
    q, k, v = data(1, 32, 2, 2, 32, dtype=dtype)
    o, _ = over_ring(ring(2), q, k, v, "zigzag", mask="causal")
    assert o.dtype == dtype
    close(o, attention(q, k, v, visible(32, 32, causal=True))[0], LIMIT[dtype])


def test_result_in_float32_of_bfloat16():
    q, k, v = data(1, 16, 2, 2, 16, dtype=torch.bfloat16)
    o = ringattn.attend(q, k, v, dtype_out="float32")
    assert o.dtype == torch.float32
    close(o, attention(q, k, v, visible(16, 16))[0], LIMIT[torch.float32])


@pytest.mark.parametrize("layout", ["bshd", "bhsd", "sbhd"])
def test_layouts_are_orders_of_axes(layout):
    q, k, v = data(2, 9, 4, 2, 8)
    order = ["bshd".index(axis) for axis in layout]
    o = ringattn.attend(*(x.permute(order).contiguous() for x in (q, k, v)), mask="causal", layout=layout)
    want, _ = attention(q, k, v, visible(9, 9, causal=True))
    close(o, want.permute(order), LIMIT[torch.float32])


SETTINGS = dict(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(max_examples=60, **SETTINGS)
@given(
    st.integers(1, 3), st.integers(0, 40), st.sampled_from([(1, 1), (4, 2), (3, 1)]), st.sampled_from([1, 7, 16, 33]),
    st.integers(1, 4), st.sampled_from(PARTITIONS), st.booleans(), st.sampled_from(list(LIMIT)), st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_any_shape_stride_and_type(b, s, heads, d, world_size, partition, causal, dtype, step, swap):
    """Sliced, transposed and uneven: the same result as dense float64."""
    h, hk = heads
    q, k, v = data(b, s, h, hk, d, dtype=dtype, seed=s)
    strided = []
    for x in (q, k, v):
        room = (
            torch.full((b, x.shape[2], s * step, d + 3), 7.0, dtype=dtype)
            if swap
            else torch.full((b, s * step, x.shape[2], d + 3), 7.0, dtype=dtype)
        )
        hole = (room.transpose(1, 2) if swap else room)[:, ::step, :, 1 : d + 1]
        strided.append(hole.copy_(x))
    with ringattn.local_group(world_size) as group:
        cut = ringattn.Sharding(s, world_size, partition=partition)
        parts = [[cut.shard(x, r) for r in range(world_size)] for x in strided]
        if world_size == 1:
            parts = [[x] for x in strided]
        o = ringattn.attend(*parts, comm=group, partition=partition, mask="causal" if causal else "full", seq=s)
    want, _ = attention(q, k, v, visible(s, s, causal=causal))
    close(cut.unshard(o), want, LIMIT[dtype])


def test_strided_numpy_is_read_in_place():
    room = np.random.default_rng(0).standard_normal((1, 24, 2, 16)).astype(np.float32)
    q, k, v = room[:, ::3], room[:, 1::3], room[:, 2::3]
    assert not q.flags.c_contiguous
    o = ringattn.attend(q, k, v)
    assert isinstance(o, np.ndarray)
    t = [torch.from_numpy(np.ascontiguousarray(x)) for x in (q, k, v)]
    close(torch.from_numpy(o), attention(*t, visible(8, 8))[0], LIMIT[torch.float32])


def test_merge_of_two_halves_is_the_whole():
    q, k, v = data(2, 12, 4, 2, 8)
    halves = [ringattn.attend(q, k[:, part], v[:, part], return_lse=True) for part in (slice(0, 5), slice(5, 12))]
    o, lse = ringattn.merge(*halves[0], *halves[1])
    want = attention(q, k, v, visible(12, 12))
    close(o, want[0], LIMIT[torch.float32])
    close(lse, want[1], LIMIT[torch.float32])


def test_merge_in_place_and_of_empty_rows():
    q, k, v = data(1, 3, 1, 1, 4)
    o, lse = ringattn.attend(q, k, v, return_lse=True)
    before = o.clone()
    empty = torch.full_like(o, 5.0), torch.full_like(lse, -torch.inf)
    got = ringattn.merge(o, lse, *empty, out=o, out_lse=lse)
    assert got[0] is o and torch.equal(o, before)
    both = ringattn.merge(*empty, *empty)
    assert (both[0] == 0).all() and torch.isneginf(both[1]).all()
