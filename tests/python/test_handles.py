"""Handles: threads as ranks, the lock, Ctrl-C, refusals between ranks, copies, ends and leaks."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import ringattn
from conftest import run_ranks

PROBLEM = ringattn.Problem(seq_q=16, seq_k=16, heads=1, head_dim_qk=1, mask="causal", partition="zigzag")


def mean_so_far(comm):
    """Queries 0 and values i: row i is i / 2."""
    v = ringattn.shard(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1), comm.rank, comm.world_size)
    o = ringattn.attend(v * 0, v * 0, v, comm=comm, mask="causal", partition="zigzag", seq=16)
    return float(np.abs(o - v / 2).max())


@pytest.mark.parametrize("world_size", [2, 4])
def test_b074_python_threads_are_ranks(ring, world_size):
    assert max(run_ranks(ring(world_size), mean_so_far)) < 1e-5


def test_b074_the_lock_is_released_while_a_rank_waits(ring):
    """Rank 0 waits 1.5 s for rank 1; a thread that only sleeps keeps nearly all of its ticks."""
    group, ticks, done = ring(2), [], threading.Event()

    def ticker():
        while not done.is_set():
            time.sleep(0.01)
            ticks.append(1)

    threading.Thread(target=ticker, daemon=True).start()

    def rank(comm):
        if comm.rank == 1:
            time.sleep(1.5)
        return mean_so_far(comm)

    run_ranks(group, rank)
    done.set()
    assert len(ticks) > 60


@pytest.mark.parametrize("what", ["plan", "forward"])
def test_b074_ctrl_c_ends_a_blocked_call(ring, what):
    group = ring(2)
    plans = None if what == "plan" else run_ranks(group, lambda comm: ringattn.Plan(comm, PROBLEM))
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start, x = time.monotonic(), np.zeros((1, 8, 1, 1), np.float32)
    with pytest.raises(KeyboardInterrupt):
        plans[0].forward(x, x, x) if plans else ringattn.Plan(group[0], PROBLEM)
    assert time.monotonic() - start < 10
    with pytest.raises(ringattn.AbortedError, match="interrupted"):
        group[1].check()


def test_a_rank_refused_in_python_answers_its_peers(ring):
    """float64 never reaches the library; the other rank hears of it at once all the same, and the comm lives on."""
    group = ring(2)
    heard = {}

    def rank(comm):
        plan = ringattn.Plan(comm, PROBLEM)
        x = np.zeros((1, 8, 1, 1), np.float64 if comm.rank == 1 else np.float32)
        try:
            plan.forward(x, x, x)
        except Exception as error:  # looked at below
            heard[comm.rank] = error

    start = time.monotonic()
    run_ranks(group, rank)
    assert time.monotonic() - start < 20
    assert isinstance(heard[1], TypeError) and "q has dtype d" in str(heard[1])
    assert isinstance(heard[0], ringattn.PeerRefusedError)
    assert max(run_ranks(group, mean_so_far)) < 1e-5


WRONG = {
    "numpy": [
        {"q": "text"},
        {"v": np.zeros((1, 8, 1, 1))},
        {"mask": "casual"},
        {"scale": 0},
        {"cu_seqlens_q": [0, "a"]},
        {"dtype_out": "int9"},
        {"window": (1,)},
    ],
    "torch": [{"v": np.zeros((1, 8, 1, 1))}, {"mask": "casual"}, {"scale": 0}, {"window": (1,)}],
}


@pytest.mark.parametrize("kind, wrong", [(kind, wrong) for kind, all in WRONG.items() for wrong in all])
def test_attend_refused_in_python_answers_its_peers(ring, kind, wrong):
    """What never reaches the library is heard by the other rank at once, instead of after arrival_timeout."""
    import ringattn.torch
    import torch

    attend = ringattn.attend if kind == "numpy" else ringattn.torch.attend
    heard = {}

    def rank(comm):
        x = np.zeros((1, 8, 1, 1), np.float32)
        given = dict(q=x, k=x, v=x, mask="causal", seq=16) | (wrong if comm.rank == 1 else {})
        if kind == "torch":
            given = {name: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
        try:
            attend(given.pop("q"), given.pop("k"), given.pop("v"), comm=comm, **given)
        except Exception as error:  # looked at below
            heard[comm.rank] = error

    group = ring(2, arrival_timeout=30)
    start = time.monotonic()
    run_ranks(group, rank)
    assert time.monotonic() - start < 15
    assert not isinstance(heard[1], ringattn.Error)
    assert isinstance(heard[0], (ringattn.PeerRefusedError, ringattn.RankMismatchError)), heard[0]
    assert max(run_ranks(group, mean_so_far)) < 1e-5


def test_a_comm_in_use_is_not_closed(ring):
    group = ring(2, arrival_timeout=30)
    thread = threading.Thread(target=lambda: ringattn.Plan(group[0], PROBLEM))
    thread.start()
    time.sleep(0.3)
    with pytest.raises(ringattn.BusyError, match="this Comm is in use by another thread"):
        group[0].close()
    ringattn.Plan(group[1], PROBLEM)
    thread.join()
    group[0].close()


def test_attend_without_a_comm_from_many_threads():
    failures = []

    def one():
        x = np.ones((1, 32, 2, 8), np.float32)
        try:
            for _ in range(30):
                assert (ringattn.attend(x, x, x, mask="causal") == 1).all()
        except BaseException as error:  # looked at below
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_ranks_that_disagree_hear_the_same(ring):
    def rank(comm):
        with pytest.raises(ringattn.RankMismatchError, match="heads") as caught:
            ringattn.Plan(comm, PROBLEM.replace(heads=1 + comm.rank))
        return caught.value.message

    one, other = run_ranks(ring(2), rank)
    assert one == other


def test_abort_and_check(ring):
    group = ring(2)
    group[0].check()
    group[1].abort("enough")
    with pytest.raises(ringattn.AbortedError, match="enough"):
        group[0].check()


@pytest.mark.parametrize("make", [lambda g: g[0], lambda g: ringattn.Plan(g[0], PROBLEM), lambda g: g.context])
def test_handles_cannot_be_pickled(ring, make):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(make(ring(1)))


def test_exceptions_can_be_pickled():
    with pytest.raises(ringattn.InvalidArgumentError) as caught:
        ringattn.local_group(0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and again.message == caught.value.message and again.status == -1


def test_closing_ends_children_first_and_twice_is_legal():
    context = ringattn.Context(threads=1)
    group = ringattn.local_group(2, context=context)
    plans = ringattn.PlanGroup.create(group, PROBLEM)
    context.close()
    context.close()
    assert context.closed and group[0].closed and plans[0].closed
    with pytest.raises(ringattn.ClosedError, match="this Plan is closed"):
        plans[0].info()


def test_a_plan_in_use_is_not_closed(ring):
    group = ring(2)
    plans = run_ranks(group, lambda comm: ringattn.Plan(comm, PROBLEM))
    x = np.zeros((1, 8, 1, 1), np.float32)
    thread = threading.Thread(target=lambda: plans[0].forward(x, x, x))
    thread.start()
    time.sleep(0.3)
    with pytest.raises(ringattn.BusyError, match="in use by another thread"):
        plans[0].close()
    plans[1].forward(x, x, x)
    thread.join()


@pytest.mark.parametrize("status, kind, builtin", [
    (-1, ringattn.InvalidArgumentError, ValueError), (-2, ringattn.UnsupportedError, NotImplementedError),
    (-3, ringattn.OutOfMemoryError, MemoryError), (-100, ringattn.RankMismatchError, ValueError),
    (-202, ringattn.RankTimeoutError, TimeoutError), (-50, ringattn.CallError, Exception), (-150, ringattn.RequestError, Exception),
    (-250, ringattn.CommError, Exception), (-399, ringattn.ContextError, Exception), (-9999, ringattn.Error, Exception),
])  # fmt: skip
def test_exceptions_by_range(status, kind, builtin):
    from ringattn.errors import from_status

    error = from_status(status, "text")
    assert type(error) is kind and isinstance(error, builtin) and error.status == status and str(error) == "text"


@pytest.mark.parametrize("field, value, text", [
    ("mask", "casual", "mask is 'casual'; expected one of 'full', 'causal'"), ("partition", 3, "partition is 3; expected one of"),
    ("scope", "row", "scope is 'row'"), ("query_cut", "", "query_cut is ''"), ("scale", 0, "scale is 0; expected a number above 0"),
    ("dtype", "float64", "dtype is 'float64'; expected float32, float16 or bfloat16"), ("heads", 0, "heads: 0"),
    ("heads", 2.5, "heads is 2.5; expected an integer"), ("window_left", -1, "window_left: -1"), ("head_dim_qk", 577, "577"),
    ("scale", -1.0, "scale: -1"), ("scale", float("nan"), "scale"), ("kv_heads", 3, "kv_heads: 3"), ("stripe", 2, "stripe: 2"),
])  # fmt: skip
def test_b094_refusals_name_field_value_and_what_was_expected(field, value, text):
    with pytest.raises((ValueError, TypeError, ringattn.UnsupportedError)) as caught:
        ringattn.Preview(PROBLEM.replace(**{field: value}), 0, 2)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_options_are_errors():
    x = np.zeros((1, 4, 1, 1), np.float32)
    with pytest.raises(TypeError, match="dropout"):
        ringattn.attend(x, x, x, dropout=0.1)


def test_b072_results_outlive_their_handles():
    """Arrays that came from a plan own their memory."""
    with ringattn.local_group(1) as group:
        plan = ringattn.Plan(group[0], PROBLEM)
        index, position = plan.positions()
        x = np.ones((1, 16, 1, 1), np.float32)
        o, lse = plan.forward(x, x, x)
    del plan, group
    gc.collect()
    noise = [np.full(1 << 20, 7.0) for _ in range(8)]
    assert list(index) == list(range(16)) == list(position) and (o == 1).all() and np.isfinite(lse).all() and noise


EXIT = """
import numpy as np, ringattn
group = ringattn.local_group(2)
plans = ringattn.PlanGroup.create(group, ringattn.Problem(seq_q=16, seq_k=16, heads=1, head_dim_qk=1))
x = np.zeros((1, 8, 1, 1), np.float32)
plans.forward([x, x], [x, x], [x, x])
ringattn.attend(x, x, x)
cycle = [plans, group]; cycle.append(cycle)
print("end")
"""

FORK = """
import os, numpy as np, ringattn
group = ringattn.local_group(1, context=ringattn.Context(threads=1))
x = np.ones((1, 8, 1, 1), np.float32)
ringattn.attend(x, x, x, comm=group[0])
ringattn.shard(x, 0, 2)
pid = os.fork()
if pid == 0:
    try:
        ringattn.attend(x, x, x, comm=group[0])
    except ringattn.ForkedError:
        ok = (ringattn.attend(x, x, x) == 1).all() and ringattn.shard(x, 0, 2).shape[1] == 4
        os._exit(0 if ok else 3)
    os._exit(4)
_, status = os.waitpid(pid, 0)
ringattn.attend(x, x, x, comm=group[0])
print("end", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("program, text", [(EXIT, "end"), (FORK, "end 0")], ids=["exit", "fork"])
def test_b040_programs_end_cleanly(program, text):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"RINGATTN_LOG": "warn"},
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, text, "")


def in_child():
    return ringattn.attend(*[np.ones((1, 8, 1, 1), np.float32)] * 3).sum() == 8


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_b040_children_of_multiprocessing(method):
    import multiprocessing

    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(in_child)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_b072_ten_thousand_calls_leak_nothing():
    x = np.ones((1, 8, 1, 4), np.float32)
    bad = x.astype(np.float64)

    def calls(count):
        for _ in range(count):
            ringattn.attend(x, x, x, return_lse=True)
            with pytest.raises(TypeError):
                ringattn.attend(x, x, bad)

    calls(1000)
    gc.collect()
    before = resident()
    calls(10000)
    gc.collect()
    assert resident() - before < 4 << 20


def test_handles_leak_nothing():
    def rounds(count):
        for _ in range(count):
            with ringattn.Context(threads=1) as context, ringattn.local_group(2, context=context) as group:
                ringattn.PlanGroup.create(group, PROBLEM)

    rounds(20)
    before, files = resident(), len(os.listdir("/proc/self/fd"))
    rounds(200)
    assert resident() - before < 8 << 20 and len(os.listdir("/proc/self/fd")) == files
