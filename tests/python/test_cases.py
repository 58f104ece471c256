"""What people met with other libraries, and has no place in another file."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import ringattn
import torch
from conftest import run_ranks
from oracle import LIMIT, attention, close, documents

SIGNALS = """
import faulthandler, threading, numpy as np, ringattn, sys
def caught():
    with open("/proc/self/status") as file:
        return [line for line in file if line.startswith(("SigCgt", "SigIgn"))]
faulthandler.enable()
before, parts, meet = caught(), [None, None], threading.Barrier(2)
def rank(number):
    def allgather(own):
        parts[number] = own
        meet.wait(60)
        all = list(parts)
        meet.wait(60)
        return all
    x = np.ones((1, 8, 1, 1), np.float32)
    with ringattn.Comm.from_allgather(allgather, number, 2, transport=sys.argv[1], arrival_timeout=60) as comm:
        assert (ringattn.attend(x, x, x, comm=comm) == 1).all()
threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("end" if caught() == before else f"{before} became {caught()}")
"""


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
def test_b079_signal_handlers_stay_python_s_own(transport):
    can = ringattn.build_info()["transports"]
    if transport == "ucx" and "ucx" not in str(can):
        pytest.skip("ucx is not built")
    done = subprocess.run([sys.executable, "-c", SIGNALS, transport], capture_output=True, text=True, timeout=120)
    if "libuc" in done.stderr:
        pytest.skip("UCX is not installed")
    assert done.stdout.strip() == "end", done.stdout + done.stderr


OPENMP = """
import os, numpy as np, ringattn, torch
torch.set_num_threads(2)
a = torch.ones(512, 512) @ torch.ones(512, 512)  # another runtime's threads are there now
x = np.ones((1, 64, 2, 8), np.float32)
assert (ringattn.attend(x, x, x) == 1).all()
pid = os.fork()
if pid == 0:
    os._exit(0 if (ringattn.attend(x, x, x) == 1).all() else 3)
_, status = os.waitpid(pid, 0)
assert (ringattn.attend(x, x, x) == 1).all() and a[0, 0] == 512
print("end", os.waitstatus_to_exitcode(status))
"""


def test_b085_beside_openmp_and_after_a_fork():
    done = subprocess.run([sys.executable, "-c", OPENMP], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "end 0"), done.stderr


def test_b085_threads_are_as_many_as_asked_for():
    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
    with ringattn.Context(threads=3) as context, ringattn.local_group(4, context=context) as group:
        x = [np.ones((1, 64, 2, 8), np.float32)] * 4
        ringattn.attend(x, x, x, comm=group)
        assert threads() - before <= 2  # the caller computes too; ranks share the context's threads


def test_b092_documents_shorter_than_the_ring(ring):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 13, 2, 8, generator=generator) for _ in range(3))
    cut = ringattn.Sharding(13, 4, partition="zigzag", cu_seqlens=[0, 5, 12, 13])

    def rank(comm):
        mine = [cut.shard(x, comm.rank) for x in (q, k, v)]
        return ringattn.attend(
            *mine, comm=comm, mask="causal", partition="zigzag", scope="document", seq=13, cu_seqlens_q=[0, 5, 12, 13]
        )

    cu = [0, 5, 12, 13]
    want = attention(q, k, v, documents(cu, cu, 13, 13, causal=True))[0]
    close(cut.unshard(run_ranks(ring(4), rank)), want, LIMIT[torch.float32])


def test_b092_a_length_that_nothing_divides(ring):
    """32769 values on 4 ranks: queries 0, so that o is the mean of all values so far."""
    v = np.arange(32769, dtype=np.float32).reshape(1, -1, 1, 1) / 32769
    parts = [ringattn.shard(v, rank, 4) for rank in range(4)]
    assert sorted(part.shape[1] for part in parts)[0] < sorted(part.shape[1] for part in parts)[-1]
    zero = [0 * part for part in parts]
    o = ringattn.attend(zero, zero, parts, comm=ring(4), mask="causal", partition="zigzag")
    assert max(np.abs(have - part / 2).max() for have, part in zip(o, parts)) < LIMIT[torch.float32]


@pytest.mark.parametrize("partition", ["contiguous", "striped", "zigzag"])
def test_b095_a_ring_within_one_process(ring, partition):
    v = np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)
    parts = [ringattn.shard(v, rank, 4, partition=partition) for rank in range(4)]
    zero = [0 * part for part in parts]
    o = ringattn.attend(zero, zero, parts, comm=ring(4), mask="causal", partition=partition)
    assert np.abs(ringattn.unshard(o, partition=partition).ravel() - np.arange(16) / 2).max() < 1e-5


def test_b049_a_whole_sequence_in_place_of_a_shard_is_refused(ring):
    whole = np.zeros((1, 16, 1, 1), np.float32)
    with pytest.raises(ValueError, match="16") as caught:
        ringattn.attend([whole] * 4, [whole] * 4, [whole] * 4, comm=ring(4), seq=16)
    assert "expected" in str(caught.value) and "4" in str(caught.value)


def test_the_documentation_s_first_ring_runs():
    """What docs/python.md shows, as it is there."""
    path = pathlib.Path(os.environ.get("RINGATTN_EXAMPLES", pathlib.Path(__file__).parents[2] / "examples"))
    text = (path.parent / "docs" / "python.md").read_text()
    program = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "local_group" in block)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    numbers = [float(number) for number in re.findall(r"[\d.]+", done.stdout)]
    assert np.abs(np.array(numbers) - np.arange(16) / 2).max() < 1e-5
