# %% [markdown]
# # A ring in three pictures
#
# The schedule, the overlap and the error, drawn from what the library itself tells. Runs as a script, or cell by cell in an
# editor that knows `# %%`. Needs matplotlib.
#
#     python examples/ring_pictures.py [FOLDER]        # writes schedule.png, overlap.png and error.png there

# %%
import functools
import os
import sys
import threading
from pathlib import Path

import matplotlib

if "DISPLAY" not in os.environ:
    matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import ringattn

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ".")
RANKS = 4

# %% [markdown]
# ## The schedule
#
# Queries stay; in each step a rank computes with another block of keys and values. `Preview` tells all of it without a comm.
# The number is the rank that owns the block, the colour how many pairs of query and key it has to compute. Under a causal
# mask, contiguous shards leave rank 0 idle; zig-zag gives all ranks the same work in every step.


# %%
def work(partition):
    """owner and pairs of the block that each rank computes with in each step, [rank, step]."""
    problem = ringattn.Problem(seq_q=1024, seq_k=1024, heads=1, head_dim_qk=64, mask="causal", partition=partition)
    owner, pairs = np.full((RANKS, RANKS), -1), np.zeros((RANKS, RANKS))
    with ringattn.Preview(problem, 0, RANKS) as plan:
        for rank, described in enumerate(plan.operations()["ranks"]):
            for operation in described["operations"]:
                if operation["kind"] == "attend":
                    owner[rank, operation["step"]] = operation["block"]
                    pairs[rank, operation["step"]] += operation["pairs"]
    return owner, pairs


partitions = ("contiguous", "striped", "zigzag")
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
schedules = {partition: work(partition) for partition in partitions}
most = max(pairs.max() for _, pairs in schedules.values())
for axis, (partition, (owner, pairs)) in zip(axes, schedules.items()):
    image = axis.imshow(pairs, cmap="Blues", vmin=0, vmax=1.3 * most)
    for (rank, step), block in np.ndenumerate(owner):
        axis.text(step, rank, "-" if block < 0 else block, ha="center", va="center")
    total = pairs.sum(axis=1)
    axis.set(
        title=f"{partition}: most work over mean {total.max() / total.mean():.2f}",
        xlabel="step",
        ylabel="rank",
        xticks=range(RANKS),
        yticks=range(RANKS),
    )
figure.colorbar(image, ax=axes, label="pairs of query and key")
figure.savefig(FOLDER / "schedule.png", dpi=120)

# %% [markdown]
# ## The overlap
#
# A plan with `trace=True` records what happened when. Here a thread is a rank, over TCP: while a rank computes with one block,
# the next one is on its way; where there is nothing to compute, it waits.


# %%
class Meeting:
    """How the threads find each other: an all-gather."""

    def __init__(self):
        self.parts, self.all_here = [b""] * RANKS, threading.Barrier(RANKS)

    def allgather(self, rank, own):
        self.parts[rank] = own
        self.all_here.wait()
        parts = list(self.parts)
        self.all_here.wait()
        return parts


def record(rank, meeting, problem, events):
    """The events of one rank's second execution; the first one warms up."""
    context = ringattn.Context(threads=1)
    comm = ringattn.Comm.from_allgather(
        functools.partial(meeting.allgather, rank), rank, RANKS, context=context, transport="tcp"
    )
    shape = (1, problem.seq_q // RANKS, problem.heads, problem.head_dim_qk)
    q, k, v = np.random.default_rng(rank).standard_normal((3, *shape), dtype=np.float32)
    with comm, ringattn.Plan(comm, problem) as plan:
        plan.forward(q, k, v)
        plan.forward(q, k, v)
        events[rank] = plan.events()


problem = ringattn.Problem(
    seq_q=4096, seq_k=4096, heads=4, head_dim_qk=64, mask="causal", partition="zigzag", trace=True
)
meeting, events = Meeting(), [[]] * RANKS
ranks = [threading.Thread(target=record, args=(rank, meeting, problem, events)) for rank in range(RANKS)]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()

kinds = {  # event: row within the rank, colour, words
    ringattn.core.EVENT_TILE: (0, "tab:blue", "tile"),
    ringattn.core.EVENT_WAIT: (0, "tab:red", "waits"),
    ringattn.core.EVENT_RECEIVE: (1, "tab:green", "block on its way"),
}
start = min(event["start_ns"] for rank in events for event in rank)
figure, axis = plt.subplots(figsize=(11, 3.4), layout="constrained")
for rank, recorded in enumerate(events):
    for kind, (row, colour, _) in kinds.items():
        bars = [
            ((e["start_ns"] - start) / 1e6, (e["end_ns"] - e["start_ns"]) / 1e6) for e in recorded if e["kind"] == kind
        ]
        axis.broken_barh(bars, (rank + 0.45 * row - 0.4, 0.4), color=colour, edgecolor="white", linewidth=0.3)
for _, colour, label in kinds.values():
    axis.plot([], [], color=colour, linewidth=6, label=label)
axis.set(title=f"{RANKS} ranks over TCP on {os.cpu_count()} cores", xlabel="ms", ylabel="rank", yticks=range(RANKS))
axis.invert_yaxis()
axis.legend(ncols=3, loc="lower right")
figure.savefig(FOLDER / "overlap.png", dpi=120)

# %% [markdown]
# ## The error
#
# Against float64. It grows slowly with the number of keys, as any sum's in float32, and not with the number of ranks: the
# unnormalised output, the maximum and the sum of a row stay in float32 from block to block, and are rounded once.


# %%
def exact(q, k, v):
    q, k, v = (x[0, :, 0].astype(np.float64) for x in (q, k, v))
    s = q @ k.T / np.sqrt(q.shape[1])
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)


def error(keys, ranks):
    """Root of the mean squared error of o over that of o itself; 64 queries."""
    random = np.random.default_rng(keys)
    q = random.standard_normal((1, 64, 1, 64), dtype=np.float32)
    k, v = (random.standard_normal((1, keys, 1, 64), dtype=np.float32) for _ in range(2))
    cut = lambda x: [ringattn.shard(x, rank, ranks, partition="contiguous") for rank in range(ranks)]
    with ringattn.local_group(ranks) as ring:
        o = ringattn.attend(cut(q), cut(k), cut(v), comm=ring, seq=(64, keys))
    want = exact(q, k, v)
    got = np.concatenate(o, axis=1)[0, :, 0].astype(np.float64)
    return np.sqrt(((got - want) ** 2).mean() / (want**2).mean())


lengths = [256, 1024, 4096, 16384]
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for ranks in (1, 2, 4, 8, 16):
    axis.plot(lengths, [error(keys, ranks) for keys in lengths], marker="o", label=f"{ranks} ranks")
axis.axhline(2.0**-24, color="gray", linestyle="--", label="half a unit of float32")
axis.set(xscale="log", yscale="log", xlabel="keys", ylabel="relative error of o", title="float32, against float64")
axis.set_xticks(lengths, map(str, lengths))
axis.minorticks_off()
axis.legend()
figure.savefig(FOLDER / "error.png", dpi=120)
print(f"written: {', '.join(str(FOLDER / name) for name in ('schedule.png', 'overlap.png', 'error.png'))}")
