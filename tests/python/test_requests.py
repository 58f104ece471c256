"""Executions that go on while their caller does something else."""

import gc
import pickle
import threading

import numpy as np
import pytest
import ringattn
from conftest import run_ranks

PROBLEM = ringattn.Problem(seq_q=16, seq_k=16, heads=1, head_dim_qk=1, mask="causal", partition="zigzag", backward=True)


def shards(world_size=2):
    """Queries and keys 0 and values i: row i of the result is i / 2."""
    v = np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)
    return [ringattn.shard(v, rank, world_size) for rank in range(world_size)]


@pytest.fixture
def plans(ring):
    return ringattn.PlanGroup.create(ring(2), PROBLEM)


def test_two_ranks_of_one_thread_are_waited_for_in_any_order(plans):
    requests = [plan.start_forward(0 * v, 0 * v, v) for plan, v in zip(plans, shards())]
    assert not requests[1].done
    for request, v in zip(reversed(requests), reversed(shards())):
        o, lse = request.wait()
        assert np.abs(o - v / 2).max() < 1e-5 and lse.shape == (1, 1, 8)
        assert request.done and request.wait()[0] is o


def test_polling_ends(plans):
    zero = [0 * v for v in shards()]
    request = plans.start_forward(zero, zero, shards())
    while not request.test():
        pass
    assert all(np.abs(o - v / 2).max() < 1e-5 for (o, _), v in zip(request.wait(), shards()))


def test_backward(plans):
    """d v_j = sum over rows i >= j of d_o_i / (i + 1)."""
    zero = [0 * v for v in shards()]
    forward = plans.forward(zero, zero, shards())
    ones = [np.ones_like(v) for v in shards()]
    request = plans.start_backward(zero, zero, shards(), *map(list, zip(*forward)), ones)
    want = [sum(1 / (i + 1) for i in range(j, 16)) for j in range(16)]
    for (_, _, d_v), v in zip(request.wait(), shards()):
        assert np.abs(d_v.ravel() - [want[int(j)] for j in v.ravel()]).max() < 1e-5


def test_a_wait_has_a_limit(plans):
    v = shards()
    first = plans[0].start_forward(0 * v[0], 0 * v[0], v[0])
    with pytest.raises(TimeoutError, match="not done after 0.05 s; it goes on"):
        first.wait(0.05)
    assert not first.done
    plans[1].start_forward(0 * v[1], 0 * v[1], v[1]).wait()
    assert np.abs(first.wait(60)[0] - v[0] / 2).max() < 1e-5


def test_cancel_ends_it_on_every_rank_and_the_comm_lives_on(plans):
    v = shards()
    first = plans[0].start_forward(0 * v[0], 0 * v[0], v[0])
    first.cancel()
    with pytest.raises(ringattn.CanceledError):
        first.wait()
    with pytest.raises(ringattn.CanceledError):
        first.wait()  # the same again
    with pytest.raises(ringattn.CanceledError, match="rank 0"):
        plans[1].forward(0 * v[1], 0 * v[1], v[1])
    zero = [0 * x for x in v]
    assert all(np.abs(o - x / 2).max() < 1e-5 for (o, _), x in zip(plans.forward(zero, zero, v), v))


def test_a_forgotten_request_is_canceled(plans):
    v = shards()
    plans[0].start_forward(0 * v[0], 0 * v[0], v[0])
    gc.collect()
    with pytest.raises(ringattn.CanceledError):
        plans[1].forward(0 * v[1], 0 * v[1], v[1])


def test_a_plan_is_not_closed_under_a_request(plans):
    v = shards()
    request = plans[0].start_forward(0 * v[0], 0 * v[0], v[0])
    with pytest.raises(ringattn.BusyError):
        plans[0].close()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(request)
    plans[1].forward(0 * v[1], 0 * v[1], v[1])
    request.wait()
    plans[0].close()


def test_arrays_live_as_long_as_the_request(plans):
    v = shards()
    first = plans[0].start_forward(np.zeros((1, 8, 1, 1), np.float32), np.zeros((1, 8, 1, 1), np.float32), v[0].copy())
    noise = [np.full((1, 8, 1, 1), np.nan, np.float32) for _ in range(1000)]
    plans[1].forward(0 * v[1], 0 * v[1], v[1])
    assert np.abs(first.wait()[0] - v[0] / 2).max() < 1e-5 and noise


def test_a_progress_thread_advances_it():
    """Rank 0 starts and computes something else; rank 1, on a thread of its own, gets its result meanwhile."""
    with (
        ringattn.Context(threads=1, progress_thread=True) as context,
        ringattn.local_group(2, context=context) as group,
    ):
        plans, v, done = ringattn.PlanGroup.create(group, PROBLEM), shards(), threading.Event()

        def rank(comm):
            request = plans[comm.rank].start_forward(0 * v[comm.rank], 0 * v[comm.rank], v[comm.rank])
            if comm.rank == 0:
                assert done.wait(60)
            o = request.wait()[0]
            done.set()
            return np.abs(o - v[comm.rank] / 2).max()

        assert max(run_ranks(group, rank)) < 1e-5
