"""The operator in torch's machinery: opcheck, compile without a graph break, refusals."""

import pytest
import ringattn
import ringattn.torch
import torch
from oracle import LIMIT, attention, close, visible
from test_forward import data


def arguments(grad=True, dtype=torch.float32, **kinds):
    q, k, v = (x.requires_grad_(grad) for x in data(2, 8, 2, 1, 4, 6, dtype=dtype))
    rest = dict(
        cu_q=None,
        cu_k=None,
        query_offset=None,
        comm=0,
        mask="causal",
        left=-1,
        right=-1,
        scale=None,
        partition="contiguous",
        stripe=0,
        scope="capacity",
        query_cut="auto",
        seq_q=-1,
        seq_k=-1,
        max_sequences=0,
        dtype_out="",
        layout="bshd",
        grad=grad,
    )
    return (q, k, v, *(rest | kinds).values())


@pytest.mark.parametrize(
    "kinds",
    [{}, {"left": 2}, {"scale": 0.3}, {"cu_q": torch.tensor([0, 5, 13])}, {"dtype_out": "float32"}],
    ids=["causal", "window", "scale", "lengths", "out"],
)
def test_opcheck(kinds):
    torch.library.opcheck(torch.ops.ringattn.attend, arguments(**kinds))


def test_opcheck_of_other_layouts():
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in arguments()[:3])
    torch.library.opcheck(torch.ops.ringattn.attend, (q, k, v, *arguments(layout="bhsd")[3:]))


def test_compile_takes_it_whole():
    q, k, v = data(1, 16, 2, 2, 8)

    def model(q, k, v):
        o, lse = ringattn.torch.attend(torch.sin(q), k, v, mask="causal", return_lse=True)
        return (o * 2).sum() + lse.sum()

    leaves = [x.requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(model(*leaves), leaves)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for have, expected in zip(torch.autograd.grad(compiled(*leaves), leaves), want):
        close(have, expected, 1e-6)


def test_compile_with_a_comm_of_a_ring(ring):
    comm = ring(1)[0]
    q, k, v = data(1, 16, 2, 2, 8)
    compiled = torch.compile(
        lambda *x: ringattn.torch.attend(*x, comm=comm, partition="zigzag"), backend="aot_eager", fullgraph=True
    )
    close(compiled(q, k, v), attention(q, k, v, visible(16, 16))[0], LIMIT[torch.float32])


def test_shapes_without_data():
    q, k, v = (x.detach().to("meta") for x in arguments()[:3])
    o, lse = ringattn.torch.attend(q, k, v, return_lse=True)
    assert o.shape == (2, 8, 2, 6) and lse.shape == (2, 2, 8) and o.is_meta


def test_under_checkpoint_and_no_grad():
    from torch.utils.checkpoint import checkpoint

    q, k, v = (x.requires_grad_() for x in data(1, 8, 2, 2, 4))
    call = lambda *x: ringattn.torch.attend(*x, mask="causal")  # noqa: E731
    want = torch.autograd.grad(call(q, k, v).sum(), q)[0]
    close(torch.autograd.grad(checkpoint(call, q, k, v, use_reentrant=False).sum(), q)[0], want, 1e-6)
    with torch.no_grad():
        assert not call(q, k, v).requires_grad


def test_refusals_name_the_tensor():
    q, k, v = data(1, 8, 2, 2, 4)
    with pytest.raises(TypeError, match="k has dtype torch.float64; expected float32"):
        ringattn.torch.attend(q, k.double(), v)
    with pytest.raises(TypeError, match="v has dtype torch.float16; expected torch.float32, that of q"):
        ringattn.torch.attend(q, k, v.half())
    with pytest.raises(ValueError, match="window: left is -2"):
        ringattn.torch.attend(q, k, v, window=-2)
    with pytest.raises(BufferError, match="q cannot be passed on by DLPack.*gradient"):
        ringattn.attend(q.requires_grad_(), k, v)


def test_double_backward_is_refused():
    q, k, v = (x.requires_grad_() for x in data(1, 4, 1, 1, 4))
    (grad,) = torch.autograd.grad(ringattn.torch.attend(q, k, v).sin().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        torch.autograd.grad(grad.sum(), q)
