#!/usr/bin/env python3
"""Writes ci.txt beside itself: problems for `ringattn verify --file` and the test ProblemsTest. Deterministic."""

import itertools
import pathlib

lines = []
state = 12345


def below(limit):
    """A small generator of our own, so that no version of Python changes the file."""
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % limit


def pick(*values):
    return values[below(len(values))]


def group(title):
    lines.append(("" if not lines else "\n") + "# " + title)


def add(text):
    lines.append(text)


PARTITIONS = ["contiguous", "striped", "zigzag", "explicit:random"]
RANKS = [1, 2, 3, 4, 5, 7, 8, 16]

group("Every partition at every number of ranks, full and causal; lengths that nothing divides")
for partition, ranks in itertools.product(PARTITIONS, RANKS):
    for mask in ["full", "causal"]:
        n = 37 + 11 * ranks + below(60)
        add(f"n={n} heads=2 dim=32 mask={mask} partition={partition} ranks={ranks} seed={below(1000)}")

group("Windows: left, right, both, with causal, and of size 0 (the query's own position alone)")
MASKS = [
    "window:7",
    "causal,window:16",
    "window:3:5",
    "window:*:4",
    "window:0",
    "causal,window:0",
    "window:0:0",
    "window:40:1",
    "causal,window:200",
    "window:*:0",
]
for i, (mask, ranks) in enumerate(itertools.product(MASKS, [2, 3, 5, 8])):
    partition = PARTITIONS[(i + i // 4) % 4]
    add(f"n={90 + 13 * ranks + below(40)} heads=2 kv_heads=1 dim=40 mask={mask} partition={partition} ranks={ranks}")

group("Windows so narrow that blocks need not go all the way round")
for ranks in [4, 8, 16]:
    for partition in ["contiguous", "zigzag", "striped:32"]:
        add(f"n={40 * ranks + 3} dim=64 mask=causal,window:25 partition={partition} ranks={ranks}")

group("Documents in every scope, with tail padding, empty documents and documents shorter than the ranks are many")
DOCS = ["3,5,8", "60,1,0,77", "100,0,0,31,2,2,2", "1,1,1,1,1,1,1", "150", "0,90,0"]
for i, (docs, scope) in enumerate(itertools.product(DOCS, ["capacity", "call", "document"])):
    total = sum(int(d) for d in docs.split(","))
    for j, ranks in enumerate([2, 3 + i % 3, 8]):
        partition = PARTITIONS[(i + j) % 3]
        mask = ["causal", "full", "causal,window:9", "window:4:6"][(i + j) % 4]
        add(
            f"n={total + pick(0, 6, 29)} heads=2 dim=24 mask={mask} docs={docs} max_docs={9 + j} "
            f"partition={partition} scope={scope} ranks={ranks}"
        )

group("Documents over explicit runs, which a call's length only clips")
for ranks in [2, 3, 5, 8]:
    add(f"n=120 dim=16 mask=causal docs=50,33,20 partition=explicit:random ranks={ranks} seed={ranks}")
    add(f"n=64 dim=16 mask=full docs=10,11 partition=explicit:random ranks={ranks} seed={10 + ranks}")

group("More keys than queries and the other way round; bottom-right causal; both ways to cut the queries")
for i, (lengths, mask) in enumerate(
    itertools.product(
        ["q=2 k=5", "q=5 k=2", "q=33 k=150", "q=150 k=33", "q=1 k=257", "q=64 k=65"],
        ["causal", "full", "causal,window:20", "window:10:3"],
    )
):
    ranks = RANKS[1 + i % 7]
    partition = PARTITIONS[i % 4]
    add(f"{lengths} heads=4 kv_heads=2 dim=48 mask={mask} partition={partition} query_cut=by_index ranks={ranks}")
for partition, ranks in itertools.product(PARTITIONS, [2, 5]):
    add(f"q=40 k=131 heads=2 dim=32 mask=causal partition={partition} query_cut=like_keys ranks={ranks}")
    add(f"q=1 k=90 heads=2 dim=32 mask=causal partition={partition} query_cut=like_keys ranks={ranks}")

group("A query offset: chunks of a prefill, rows before the first key, queries beyond the last key")
for i, offset in enumerate([0, 1, 5, 63, -3, -200, 400]):
    for j, mask in enumerate(["causal", "window:12:2", "causal,window:30"]):
        add(
            f"q=50 k=120 dim=32 mask={mask} offset={offset} partition={PARTITIONS[(i + j) % 4]} query_cut=by_index "
            f"ranks={RANKS[1 + (i + j) % 6]}"
        )
add("n=100 dim=32 mask=causal docs=40 offset=17 partition=zigzag query_cut=like_keys ranks=4")
add("n=100 dim=32 mask=causal docs=20,20 docs_k=50,50 offset=29 partition=striped query_cut=like_keys ranks=3")

group("Documents whose key lengths differ from their query lengths")
for i, (docs, docs_k) in enumerate([("2,3", "5,1"), ("20,0,9", "0,30,9"), ("7,7,7", "70,7,0"), ("3", "0"), ("0", "8")]):
    for j, scope in enumerate(["capacity", "call", "document"]):
        mask = ["causal", "full", "causal,window:6"][(i + j) % 3]
        add(
            f"q=40 k=90 heads=2 dim=20 mask={mask} docs={docs} docs_k={docs_k} partition={PARTITIONS[(i + j) % 3]} "
            f"scope={scope} query_cut=by_index ranks={2 + i}"
        )

group("Head sizes, grouped heads and one kv head for all")
for i, dims in enumerate(
    [
        "dim=1",
        "dim=3",
        "dim=17",
        "dim=40",
        "dim=64",
        "dim=72",
        "dim=80",
        "dim=96",
        "dim=128",
        "dim=192 dim_v=128",
        "dim=576 dim_v=512",
        "dim=8 dim_v=1",
        "dim=1 dim_v=200",
    ]
):
    for j, heads in enumerate(["heads=1", "heads=6 kv_heads=2", "heads=5 kv_heads=1"]):
        n = 30 + below(20) if "576" in dims else 70 + below(90)
        dtype = ["f32", "bf16", "f16"][(i + j) % 3]
        add(
            f"n={n} {heads} {dims} dtype={dtype} mask={pick('causal', 'full')} partition={PARTITIONS[(i + 2 * j) % 4]} "
            f"ranks={RANKS[(i + j) % 6]}"
        )

group("Types in and out, accuracy, and every memory layout")
for i, (dtype, out, layout) in enumerate(
    itertools.product(["f32", "f16", "bf16"], ["same", "f32"], ["bshd", "bhsd", "sbhd", "sliced"])
):
    add(
        f"n={100 + below(100)} heads=4 kv_heads=2 dim=64 dtype={dtype} dtype_out={out} layout={layout} "
        f"accuracy={['default', 'exact'][i % 2]} mask=causal partition={PARTITIONS[i % 3]} ranks={RANKS[1 + i % 5]}"
    )

group("Batches, without and with lengths of the rows")
for i, (batch, scope) in enumerate(itertools.product([2, 3, 5], ["capacity", "call", "document"])):
    ranks = RANKS[1 + i % 6]
    layout = ["bshd", "bhsd", "sbhd", "sliced"][i % 4]
    rows = ",".join(str(pick(0, 1, 13, 40, 55)) for _ in range(batch))
    add(
        f"n=55 batch={batch} heads=2 dim=32 mask=causal partition={PARTITIONS[i % 3]} scope={scope} ranks={ranks} "
        f"layout={layout}"
    )
    add(
        f"n=55 batch={batch} heads=2 dim=32 mask=causal docs={rows} partition={PARTITIONS[(i + 1) % 3]} scope={scope} "
        f"ranks={ranks} layout={layout}"
    )
add(
    "q=1 k=80 batch=4 heads=4 kv_heads=2 dim=64 dtype=bf16 mask=causal docs=1,1,1,0 docs_k=80,3,41,0 "
    "partition=striped:16 query_cut=like_keys ranks=4"
)
add("q=8 k=64 batch=2 heads=2 dim=16 mask=causal,window:9 docs=8,2 docs_k=60,64 partition=contiguous ranks=5")

group("Legal zeros: no token, no key, no query, no document, fewer tokens than ranks, empty shards")
for ranks in [1, 3, 8]:
    for text in [
        "n=0",
        "q=0 k=9",
        "q=9 k=0",
        "n=10 docs=none",
        "n=10 docs=0,0,0",
        "n=1",
        "n=2 mask=causal",
        "n=5 batch=0",
        "n=7 mask=window:0:0 partition=zigzag",
        "n=3 partition=striped:100",
    ]:
        add(f"{text} dim=16 ranks={ranks}")
add("n=8 dim=8 mask=causal partition=explicit:4/0/4/0 ranks=4")
add("n=5 dim=8 mask=causal partition=explicit:2/2/1/0 ranks=4")
add("n=90 dim=8 mask=causal partition=explicit:0/0/90 ranks=3")
add("n=90 dim=8 mask=full partition=explicit:1/88/1/0/0 ranks=5")
add("q=20 k=90 dim=8 mask=causal partition=explicit:30/0/60 query_cut=by_index ranks=3")

group("Stripes of many sizes")
for i, stripe in enumerate([2, 3, 7, 16, 64, 128]):
    for ranks in [2, 3, 7]:
        add(
            f"n={150 + below(80)} dim=32 dtype={['f32', 'bf16'][i % 2]} mask={pick('causal', 'window:31:4')} "
            f"partition=striped:{stripe} ranks={ranks}"
        )

group("Scales")
for scale in ["1", "0.01", "3", "1e-6"]:
    add(f"n=120 heads=2 dim=64 scale={scale} mask=causal partition=zigzag ranks=3")

group("Long rows, one head, one and two threads")
for i, (n, partition) in enumerate(itertools.product([1000, 1537, 2000], PARTITIONS)):
    add(
        f"n={n} dim=64 dtype={['f32', 'bf16', 'f16'][i % 3]} mask={['causal', 'causal,window:300'][i % 2]} "
        f"partition={partition} ranks={RANKS[1 + i % 7]} threads={1 + i % 2}"
    )
add("n=2000 dim=128 dtype=bf16 mask=causal docs=700,900,399 partition=zigzag scope=document ranks=8 threads=2")
add("q=16 k=2000 heads=8 kv_heads=2 dim=64 dtype=f16 mask=causal partition=contiguous ranks=4 threads=2")

group("Everything at once, at random")
for i in range(48):
    n, q_less = 20 + below(200), pick(0, 0, 7, 15)
    scope = pick("capacity", "call", "document")
    partition = pick(*(PARTITIONS if scope == "capacity" else PARTITIONS[:3]))
    docs = [below(max(1, (n - q_less) // 3)) for _ in range(3)]
    documents = f" docs={','.join(map(str, docs))}" if below(2) else ""
    kv_heads = pick(1, 2, 3)
    mask = pick("causal", "full", "window:8", "causal,window:25", "window:5:5", "window:*:9")
    add(
        f"q={n - q_less} k={n} heads={kv_heads * pick(1, 2, 3)} kv_heads={kv_heads} dim={pick(5, 16, 33, 64, 72)} "
        f"dim_v={pick(4, 31, 64)} dtype={pick('f32', 'bf16', 'f16')} mask={mask}{documents} partition={partition} "
        f"scope={scope} query_cut=by_index ranks={pick(*RANKS)} threads={pick(1, 2)} "
        f"layout={pick('bshd', 'bhsd', 'sbhd', 'sliced')} seed={i}"
    )

# -- The gradients. Small: the fp64 oracle takes three times as long as forward's -------------------------------

backward_lines = 0


def add_backward(text):
    """Every third problem with gradients in fp32; ProblemsTest lets dlse flow in at every other line."""
    global backward_lines
    backward_lines += 1
    add(f"{text} pass=backward" + (" dtype_grad=f32" if backward_lines % 3 == 0 else ""))


group("Backward: every partition at every number of ranks, full and causal")
for partition, ranks in itertools.product(PARTITIONS, RANKS):
    for mask in ["full", "causal"]:
        n = 23 + 5 * ranks + below(40)
        dtype = ["f32", "bf16", "f32", "f16", "f32"][backward_lines % 5]
        add_backward(
            f"n={n} heads=2 dim=16 dtype={dtype} mask={mask} partition={partition} ranks={ranks} seed={below(1000)}"
        )
for ranks in [6, 9, 10, 11, 12, 13, 14, 15]:
    add_backward(
        f"n={60 + below(60)} heads=2 kv_heads=1 dim=16 dtype={pick('f32', 'bf16', 'f16')} mask=causal "
        f"partition={pick(*PARTITIONS)} ranks={ranks} seed={below(1000)}"
    )

group("Backward: windows")
for i, (mask, ranks) in enumerate(itertools.product(MASKS, [1, 3, 8])):
    add_backward(
        f"n={50 + 9 * ranks + below(30)} heads=2 kv_heads=1 dim=24 mask={mask} "
        f"partition={PARTITIONS[(i + i // 4) % 4]} ranks={ranks}"
    )

group("Backward: windows so narrow that neither blocks nor their gradients go all the way round")
for ranks in [4, 7, 8, 16]:
    for partition in ["contiguous", "zigzag", "striped:16"]:
        add_backward(
            f"n={20 * ranks + 3} dim=32 dtype={pick('f32', 'bf16')} mask=causal,window:12 "
            f"partition={partition} ranks={ranks}"
        )
        add_backward(f"n={16 * ranks + 5} heads=2 dim=16 mask=window:5:9 partition={partition} ranks={ranks}")

group("Backward: documents in every scope, with padding, empty documents and documents shorter than the ranks are many")
for i, (docs, scope) in enumerate(itertools.product(DOCS, ["capacity", "call", "document"])):
    total = sum(int(d) for d in docs.split(","))
    for j, ranks in enumerate([1 + i % 4, 8]):
        mask = ["causal", "full", "causal,window:9", "window:4:6"][(i + j) % 4]
        add_backward(
            f"n={total + pick(0, 6, 19)} heads=2 dim=16 mask={mask} docs={docs} max_docs={9 + j} "
            f"partition={PARTITIONS[(i + j) % 3]} scope={scope} ranks={ranks}"
        )
for ranks in [2, 5]:
    add_backward(f"n=90 dim=16 mask=causal docs=40,23,20 partition=explicit:random ranks={ranks} seed={ranks}")

group("Backward: documents whose key lengths differ from their query lengths; keys that nobody sees")
for i, (docs, docs_k) in enumerate(
    [("2,3", "5,1"), ("20,0,9", "0,30,9"), ("7,7,7", "40,7,0"), ("3", "0"), ("0", "8"), ("4,0,4", "9,9,9")]
):
    for j, scope in enumerate(["capacity", "call", "document"]):
        mask = ["causal", "full", "causal,window:6"][(i + j) % 3]
        add_backward(
            f"q=40 k=60 heads=2 dim=12 mask={mask} docs={docs} docs_k={docs_k} "
            f"partition={PARTITIONS[(i + j) % 3]} scope={scope} query_cut=by_index ranks={1 + i}"
        )

group("Backward: more keys than queries and the other way round; both ways to cut the queries")
for i, (lengths, mask) in enumerate(
    itertools.product(
        ["q=2 k=5", "q=5 k=2", "q=17 k=70", "q=70 k=17", "q=1 k=97"],
        ["causal", "full", "causal,window:20", "window:10:3"],
    )
):
    add_backward(
        f"{lengths} heads=4 kv_heads=2 dim=24 mask={mask} partition={PARTITIONS[i % 4]} query_cut=by_index "
        f"ranks={RANKS[i % 8]}"
    )
for partition in PARTITIONS:
    add_backward(f"q=30 k=71 heads=2 dim=16 mask=causal partition={partition} query_cut=like_keys ranks=4")

group("Backward: a query offset; rows before the first key and beyond the last")
for i, offset in enumerate([0, 1, 33, -3, -100, 200]):
    for j, mask in enumerate(["causal", "window:12:2"]):
        add_backward(
            f"q=30 k=60 dim=16 mask={mask} offset={offset} partition={PARTITIONS[(i + j) % 4]} "
            f"query_cut=by_index ranks={RANKS[1 + (i + j) % 6]}"
        )

group("Backward: head sizes, grouped heads and one kv head for all")
for i, dims in enumerate(
    [
        "dim=1",
        "dim=3",
        "dim=17",
        "dim=40",
        "dim=64",
        "dim=80",
        "dim=96",
        "dim=128",
        "dim=192 dim_v=128",
        "dim=256",
        "dim=256 dim_v=1",
        "dim=1 dim_v=256",
        "dim=64 dim_v=33",
    ]
):
    for j, heads in enumerate(["heads=1", "heads=6 kv_heads=2", "heads=5 kv_heads=1"]):
        n = (20 if "256" in dims or "192" in dims else 40) + below(30)
        add_backward(
            f"n={n} {heads} {dims} dtype={['f32', 'bf16', 'f16'][(i + j) % 3]} mask={pick('causal', 'full')} "
            f"partition={PARTITIONS[(i + 2 * j) % 4]} ranks={RANKS[(i + j) % 6]}"
        )
add_backward("n=24 heads=2 dim=576 dim_v=512 dtype=bf16 mask=causal partition=zigzag ranks=2")

group("Backward: types in, out and of the gradients, accuracy, and every memory layout")
for i, (dtype, out, grad) in enumerate(itertools.product(["f32", "f16", "bf16"], ["same", "f32"], ["same", "f32"])):
    for j, layout in enumerate(["bshd", "bhsd", "sbhd", "sliced"]):
        if (i + j) % 2:
            continue
        add(
            f"n={50 + below(60)} heads=4 kv_heads=2 dim=64 dtype={dtype} dtype_out={out} layout={layout} "
            f"accuracy={['default', 'exact'][(i // 2) % 2]} mask=causal partition={PARTITIONS[(i + j) % 4]} "
            f"ranks={RANKS[(i + j) % 6]} pass=backward dtype_grad={grad}"
        )

group("Backward: batches, without and with lengths of the rows")
for i, (batch, scope) in enumerate(itertools.product([2, 3], ["capacity", "call", "document"])):
    ranks = RANKS[1 + i % 6]
    layout = ["bshd", "bhsd", "sbhd", "sliced"][i % 4]
    rows = ",".join(str(pick(0, 1, 13, 30, 41)) for _ in range(batch))
    add_backward(
        f"n=41 batch={batch} heads=2 dim=16 mask=causal partition={PARTITIONS[i % 3]} scope={scope} "
        f"ranks={ranks} layout={layout}"
    )
    add_backward(
        f"n=41 batch={batch} heads=2 kv_heads=1 dim=16 mask=causal docs={rows} partition={PARTITIONS[i % 3]} "
        f"scope={scope} ranks={ranks} layout={layout}"
    )
    add_backward(
        f"q=20 k=41 batch={batch} dim=16 mask=full docs={','.join(['20'] * batch)} docs_k={rows} "
        f"partition={PARTITIONS[i % 3]} scope={scope} query_cut=by_index ranks={ranks}"
    )

group("Backward: nothing at all, or less than a row a rank")
for line in [
    "n=0 ranks=1",
    "n=0 ranks=5",
    "n=30 batch=0 ranks=2",
    "q=0 k=20 query_cut=by_index ranks=3",
    "q=20 k=0 query_cut=by_index ranks=3",
    "n=1 ranks=1",
    "n=1 ranks=8",
    "n=3 ranks=16",
    "n=5 partition=zigzag ranks=7",
    "n=2 partition=striped ranks=4",
    "n=30 docs=none ranks=3",
    "n=16 partition=explicit:16/0/0 ranks=3",
    "n=8 partition=explicit:0/0/8/0 mask=causal ranks=4",
]:
    add_backward(line + " dim=8" + ("" if "mask" in line or "none" in line else " mask=causal"))

group("Backward: stripes and scales")
for i, stripe in enumerate([2, 3, 7, 16, 64]):
    add_backward(
        f"n={90 + below(60)} dim=32 dtype={['f32', 'bf16'][i % 2]} mask={pick('causal', 'window:31:4')} "
        f"partition=striped:{stripe} ranks={[2, 3, 7][i % 3]}"
    )
for scale in ["1", "0.01", "3", "1e-6"]:
    add_backward(f"n=80 heads=2 dim=64 scale={scale} mask=causal partition=zigzag ranks=3")

group("Backward: longer rows, one to four threads")
for i, (n, partition) in enumerate(itertools.product([400, 611], PARTITIONS)):
    add_backward(
        f"n={n} heads=2 kv_heads=1 dim=64 dtype={['f32', 'bf16', 'f16'][i % 3]} "
        f"mask={['causal', 'causal,window:100'][i % 2]} partition={partition} ranks={RANKS[i % 8]} "
        f"threads={1 + i % 4}"
    )
add_backward("n=600 dim=128 dtype=bf16 mask=causal docs=200,300,99 partition=zigzag scope=document ranks=8 threads=2")
add_backward("q=16 k=700 heads=8 kv_heads=2 dim=64 dtype=f16 mask=causal partition=contiguous ranks=4 threads=3")

group("Backward: everything at once, at random")
for i in range(40):
    n, q_less = 20 + below(100), pick(0, 0, 7, 15)
    scope = pick("capacity", "call", "document")
    partition = pick(*(PARTITIONS if scope == "capacity" else PARTITIONS[:3]))
    docs = [below(max(1, (n - q_less) // 3)) for _ in range(3)]
    documents = f" docs={','.join(map(str, docs))}" if below(2) else ""
    kv_heads = pick(1, 2, 3)
    mask = pick("causal", "full", "window:8", "causal,window:25", "window:5:5", "window:*:9")
    add_backward(
        f"q={n - q_less} k={n} heads={kv_heads * pick(1, 2, 3)} kv_heads={kv_heads} "
        f"dim={pick(5, 16, 33, 64, 72)} dim_v={pick(4, 31, 64)} dtype={pick('f32', 'bf16', 'f16')} "
        f"dtype_out={pick('same', 'f32')} mask={mask}{documents} partition={partition} scope={scope} "
        f"query_cut=by_index ranks={pick(*RANKS)} threads={pick(1, 2, 3, 4)} "
        f"layout={pick('bshd', 'bhsd', 'sbhd', 'sliced')} seed={i}"
    )

path = pathlib.Path(__file__).with_name("ci.txt")
title = "# Written by make_ci.py. The grammar stands in tests/support/problem_line.h.\n\n"
path.write_text(title + "\n".join(lines) + "\n")
print(sum(not line.lstrip().startswith("#") for line in lines), "problems in", path)
