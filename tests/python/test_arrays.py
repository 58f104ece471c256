"""Arrays of every kind in, and out in the caller's own; what is refused names the array."""

import array

import ml_dtypes
import numpy as np
import pytest
import ringattn
import torch
from oracle import LIMIT, attention, close, visible


def values(dtype=np.float32, s=6):
    g = np.random.default_rng(1)
    return [g.standard_normal((1, s, 2, 8)).astype(np.float32).astype(dtype) for _ in range(3)]


def want(arrays):
    q, k, v = (torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in arrays)
    return attention(q, k, v, visible(q.shape[1], k.shape[1]))[0]


@pytest.mark.parametrize(
    "dtype, torch_type",
    [(np.float32, torch.float32), (np.float16, torch.float16), (ml_dtypes.bfloat16, torch.bfloat16)],
)
def test_numpy(dtype, torch_type):
    arrays = values(dtype)
    o = ringattn.attend(*arrays)
    assert isinstance(o, np.ndarray) and o.dtype == dtype
    close(torch.from_numpy(o.astype(np.float32)), want(arrays), LIMIT[torch_type])


def test_b087_uint16_with_its_type_said():
    arrays = values(ml_dtypes.bfloat16)
    o = ringattn.attend(*(x.view(np.uint16) for x in arrays), dtype="bfloat16")
    assert o.dtype == np.uint16
    close(torch.from_numpy(o.view(ml_dtypes.bfloat16).astype(np.float32)), want(arrays), LIMIT[torch.bfloat16])


def test_b087_bfloat16_one_is_0x3f80():
    one = np.full((1, 1, 1, 1), 0x3F80, dtype=np.uint16)
    assert ringattn.attend(one, one, one, dtype="bfloat16").item() == 0x3F80


def test_b087_float16_that_is_called_bfloat16_is_refused():
    with pytest.raises(TypeError, match="q is not an array of uint16"):
        ringattn.attend(*values(np.float16), dtype="bfloat16")


def test_uint16_without_its_type_is_refused():
    with pytest.raises(TypeError, match="q has dtype H; expected float32"):
        ringattn.attend(*(x.view(np.uint16) for x in values(np.float16)))


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_jax(name):
    jax = pytest.importorskip("jax")
    arrays = values(ml_dtypes.bfloat16 if name == "bfloat16" else np.float32)
    o = ringattn.attend(*(jax.numpy.asarray(x) for x in arrays))
    assert isinstance(o, jax.Array) and o.dtype.name == name
    close(torch.from_numpy(np.asarray(o, dtype=np.float32)), want(arrays), LIMIT[getattr(torch, name)])


def test_jax_is_no_output():
    jax = pytest.importorskip("jax")
    x = jax.numpy.zeros((1, 4, 1, 4))
    with ringattn.local_group(1) as group:
        plan = ringattn.Plan(group[0], ringattn.Problem(seq_q=4, seq_k=4, heads=1, head_dim_qk=4))
        with pytest.raises(ValueError, match="o is read-only"):
            plan.forward(x, x, x, out=x)


def test_buffers_of_the_standard_library():
    flat = memoryview(array.array("f", [1.0] * 8)).cast("B").cast("f", (1, 2, 1, 4))
    assert np.array_equal(ringattn.attend(flat, flat, flat), np.ones((1, 2, 1, 4), np.float32))


def test_outputs_are_written_where_the_caller_says():
    q, k, v = (torch.from_numpy(x) for x in values())
    out, lse = torch.full((1, 6, 2, 8), 9.0), torch.full((1, 2, 6), 9.0)
    with ringattn.local_group(1) as group:
        plan = ringattn.Plan(group[0], ringattn.Problem(seq_q=6, seq_k=6, heads=2, head_dim_qk=8))
        got = plan.forward(q, k, v, out=out, out_lse=lse)
    assert got[0] is out and got[1] is lse
    close(out, attention(q, k, v, visible(6, 6))[0], LIMIT[torch.float32])


def test_negated_views_of_torch():
    """Their memory holds the negative of their values."""
    q, k, v = (torch.from_numpy(x) for x in values())
    got = ringattn.attend(torch._neg_view(-q), k, torch._neg_view(-v))
    close(got, attention(q, k, v, visible(6, 6))[0], LIMIT[torch.float32])
    plan_out = torch._neg_view(torch.zeros(1, 6, 2, 8))
    with ringattn.local_group(1) as group:
        plan = ringattn.Plan(group[0], ringattn.Problem(seq_q=6, seq_k=6, heads=2, head_dim_qk=8))
        with pytest.raises(ValueError, match="o is a negated view"):
            plan.forward(q, k, v, out=plan_out)


def test_inputs_are_not_written():
    arrays = values()
    for x in arrays:
        x.flags.writeable = False
    before = [x.copy() for x in arrays]
    ringattn.attend(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before))


@pytest.mark.parametrize("index, name", [(0, "q"), (1, "k"), (2, "v")])
@pytest.mark.parametrize("change, kind, text", [
    (lambda x: x[0], ValueError, "has 3 axes; expected 4: batch, seq, head, dim"),
    (lambda x: x.astype(np.float64), TypeError, "has dtype d; expected float32"),
    (lambda x: x.astype(np.complex64), TypeError, "has dtype Zf"),
    (lambda x: x.tolist(), TypeError, "is a <class 'list'>; expected an array"),
    (lambda x: None, TypeError, "is a <class 'NoneType'>"),
    (lambda x: x.astype(">f4"), TypeError, "has dtype >f"),
])  # fmt: skip
def test_refusals_name_the_array(index, name, change, kind, text):
    arrays = values()
    arrays[index] = change(arrays[index])
    with pytest.raises(kind, match=f"^{name} {text}"):
        ringattn.attend(*arrays)


def test_b071_exact_numbers_reach_the_message():
    """A size beyond 32 bits is neither cut nor reinterpreted."""
    for size in (2**31 + 5, 2**40):
        with ringattn.local_group(1) as group:
            plan = ringattn.Plan(group[0], ringattn.Problem(seq_q=4, seq_k=4, heads=1, head_dim_qk=4))
            with pytest.raises(ringattn.InvalidArgumentError, match=str(size)):
                plan.local_length("query", 0, row=size)
        supported = ringattn.supports(ringattn.Problem(seq_q=4, seq_k=4, heads=1, head_dim_qk=size))
        assert not supported and str(size) in supported.reason


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64, torch.int32, torch.int64])
def test_b071_lengths_of_any_integer_type(kind):
    q, k, v = values(s=6)
    cu = torch.tensor([0, 2, 6], dtype=kind) if isinstance(kind, torch.dtype) else np.array([0, 2, 6], dtype=kind)
    want_o = ringattn.attend(q, k, v, cu_seqlens_q=[0, 2, 6])
    assert np.array_equal(ringattn.attend(q, k, v, cu_seqlens_q=cu), want_o)
    with pytest.raises(TypeError, match=r"cu_seqlens_q has the entry 0\.0; expected integers"):
        ringattn.attend(q, k, v, cu_seqlens_q=np.array([0.0, 6.0]))
