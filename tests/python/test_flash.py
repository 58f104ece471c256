"""flash-attention's signatures: the same values, over one rank and a ring; the rest refused."""

import pytest
import ringattn
import torch
from conftest import run_ranks
from oracle import LIMIT, attention, close, documents, visible
from ringattn import flash
from test_forward import data


@pytest.mark.parametrize(
    "causal, window, left, right",
    [
        (False, (-1, -1), None, None),
        (True, (-1, -1), None, None),
        (True, (4, 0), 4, None),
        (False, (2, 3), 2, 3),
        (True, (3, 5), 3, None),
    ],
)
def test_func(causal, window, left, right):
    q, k, v = data(2, 9, 4, 2, 8)
    o = flash.flash_attn_func(q, k, v, causal=causal, window_size=window, softmax_scale=0.3)
    close(o, attention(q, k, v, visible(9, 9, causal=causal, left=left, right=right), 0.3)[0], LIMIT[torch.float32])


def test_varlen_has_different_keys():
    q, _, _ = data(1, 7, 2, 2, 8)
    _, k, v = data(1, 9, 2, 2, 8)
    cu_q, cu_k = [0, 3, 7], [0, 5, 9]
    o = flash.flash_attn_varlen_func(
        q[0],
        k[0],
        v[0],
        torch.tensor(cu_q, dtype=torch.int32),
        torch.tensor(cu_k, dtype=torch.int32),
        4,
        5,
        causal=True,
    )
    close(o, attention(q, k, v, documents(cu_q, cu_k, 7, 9, causal=True))[0][0], LIMIT[torch.float32])


def test_over_a_ring(ring):
    cu, (q, k, v) = [0, 5, 16], data(1, 16, 2, 2, 8)
    whole, packed = ringattn.Sharding(16, 2), ringattn.Sharding(16, 2, cu_seqlens=cu)

    def rank(comm):
        with flash.use(comm, partition="zigzag"):
            a = flash.flash_attn_func(*(whole.shard(x, comm.rank) for x in (q, k, v)), causal=True)
            b = flash.flash_attn_varlen_func(
                *(packed.shard(x, comm.rank)[0] for x in (q, k, v)), cu, cu, 11, 11, causal=True
            )
        return a, b

    parts = run_ranks(ring(2), rank)
    close(
        whole.unshard([a for a, _ in parts]), attention(q, k, v, visible(16, 16, causal=True))[0], LIMIT[torch.float32]
    )
    close(
        packed.unshard([b for _, b in parts], axis=0),
        attention(q, k, v, documents(cu, cu, 16, 16, causal=True))[0][0],
        LIMIT[torch.float32],
    )


@pytest.mark.parametrize(
    "option, value",
    [("dropout_p", 0.1), ("softcap", 30.0), ("alibi_slopes", torch.ones(2)), ("return_attn_probs", True)],
)
def test_what_a_ring_cannot_honour_is_refused(option, value):
    q, k, v = data(1, 4, 2, 2, 8)
    with pytest.raises(ValueError, match=f"^{option} is .*expected"):
        flash.flash_attn_func(q, k, v, **{option: value})
    cu = torch.tensor([0, 4])
    with pytest.raises(ValueError, match=f"^{option} is .*expected"):
        flash.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 4, 4, **{option: value})
    with pytest.raises(ValueError, match="max_seqlen_k is 3; expected at least 4"):
        flash.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 4, 3)
