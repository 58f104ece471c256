#!/usr/bin/env python3
"""`./dev bench ring`: what of a ring's transfers the computing hides, over tcp and ucx, on one host and over a link of 1 Gbit/s;
and what a step costs beside computing.

Prints tables, writes ring.json and ring.svg to the current folder. Every time is compared with another one of the same run."""

import argparse
import functools
import json
import os
import pathlib
import signal
import sys

import figures
from hosts import Hosts, Unavailable
from ranks import Workers, ucx_latency

# K/V of one token at 8 heads of 64 in f32 are 4 KiB.
ONE_HOST = ["512", "1024"]
LINK = ["128", "256", "512", "1024", "1536"]
FOUR_MIB = 1024  # tokens
JUMBO = 9000
# Many query heads share one kv head: next to nothing to transfer, so what is left is the cost of the polling.
POLLING = "1024:32:1:64"
# One token in one head: a block of 512 bytes. And one of 8 KiB, which UCX carries.
STEPS = ["1:1:1:64", "8:1:1:128"]
LANES = {
    "ucx": "self,posix,cma",
    "tcp": "self,tcp",
}  # of UCX's own test: what the ucx transport uses on one host, and tcp
# A case with a goal is repeated until its intervals are at most so wide, however it stands to the goal.
WIDE, ROUNDS = 0.02, 3
LEGEND = """
compute: the same tiles on keys that are all here; transfer: the same ring, one query a rank; times of the slowest rank
exposed: what of a step is beyond its computing. Of it:
  waiting: nothing to compute, as the library counts it
  slower tiles: what the same tiles take longer beside the transfer (the kernel's network code, caches)
  polling: time between tiles in which a rank looks for what has arrived, over time in tiles; what moves the data by the
           processor (TCP's copies) is in it"""


def judge(verdicts, name, value, limit, unit="", scale=1):
    """`value` is the worse end of its interval."""
    reached = value <= limit
    print(
        f"  {name}: {value * scale:.4g}{unit}, goal <= {limit * scale:.4g}{unit}: {'reached' if reached else 'not reached'}"
    )
    verdicts.append({"goal": name, "value": value, "limit": limit, "reached": reached})


def width(row):
    ratio, polling = row["both_over_compute"], row["polling"]
    return max(ratio["high"] - ratio["low"], polling["high"] - polling["low"])


def overlap_rows(measure, pairs, words, rounds=1):
    """One row a case; `measure` runs some words. Several rounds where the first says too little."""
    cases = measure([f"pairs={pairs}", "overlap", *words])
    for at, word in enumerate(words):
        for _ in range(1, rounds):
            if width(figures.overlap_row(cases[at])) <= WIDE:
                break
            figures.merge(cases[at], measure([f"pairs={pairs}", "overlap", word])[0])
    return [figures.overlap_row(ranks) for ranks in cases]


def print_rows(title, rows):
    print(f"\n{title}")
    print(
        "  tokens/rank  heads pairs  compute ms  transfer ms  both ms  both/compute [95 %]     exposed  waiting  slower tiles"
        "  polling [95 %]"
    )
    for row in rows:
        ratio, polling = row["both_over_compute"], row["polling"]
        heads = f"{row['heads']}:{row['kv_heads']}"
        print(
            f"  {row['tokens_per_rank']:11d}  {heads:>5s} {row['pairs']:5d}  {row['compute_s'] * 1e3:10.2f}"
            f"  {row['transfer_s'] * 1e3:11.2f}  {row['both_s'] * 1e3:7.2f}"
            f"  {ratio['median']:6.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]  {figures.exposed_share(row):7.1%}"
            f"  {row['exposed_wait']['median']:7.1%}  {row['tiles_over_alone']['median'] - 1:12.1%}"
            f"  {polling['median']:.2%} [{polling['low']:.2%}, {polling['high']:.2%}]"
        )


def link_section(workers, transport, pairs, verdicts):
    with Hosts(2, "1gbit") as hosts:
        measure = functools.partial(workers.on_hosts, hosts, transport)
        rows = overlap_rows(measure, pairs, LINK)
        threshold = max(figures.predicted_threshold(row) for row in rows[-3:])
        twice = str(max(64, round(2 * threshold / 64) * 64))
        extra = overlap_rows(measure, max(pairs, 31), [twice, POLLING], ROUNDS)
    with Hosts(2, "1gbit", JUMBO) as hosts:
        jumbo = overlap_rows(functools.partial(workers.on_hosts, hosts, transport), max(pairs, 31), [twice])
    print_rows(f"{transport}, 2 hosts, 1 Gbit/s", rows)
    measured = figures.measured_threshold(rows)
    print(
        f"  threshold: predicted {threshold:.0f} tokens per rank, measured "
        f"{'more than all tried' if measured is None else measured}"
    )
    print_rows(f"{transport}, 2 hosts, at twice the threshold; and with next to nothing to transfer", extra)
    print_rows(f"{transport}, 2 hosts, at twice the threshold, frames of {JUMBO} bytes: fewer packets, no goal", jumbo)
    one_block = next(row for row in rows if row["tokens_per_rank"] == FOUR_MIB)
    for name, row, ratio, limit in (
        ("step with a block of 4 MiB over the longer of computing and transfer", one_block, "both_over_longer", 1.15),
        ("step at twice the threshold over its computing", extra[0], "both_over_compute", 1.02),
    ):
        judge(verdicts, f"{transport}: {name}", row[ratio]["high"], limit)
    judge(verdicts, f"{transport}: polling over computing", extra[1]["polling"]["high"], 0.01, " %", 100)
    return {
        "rows": rows,
        "extra": extra,
        "jumbo": jumbo,
        "predicted_threshold": threshold,
        "measured_threshold": measured,
    }


def step_row(ranks):
    """Of each batch the slowest rank's seconds per execution."""
    both, compute = (figures.slowest(ranks, what) for what in ("both", "compute"))
    tiles = figures.slowest(ranks, "both", "tiles")
    return {
        "block_bytes": ranks[0]["block_bytes"],
        "ranks": len(ranks),
        "batches": len(both),
        "execution_s": figures.interval(both),
        "alone_s": figures.interval(compute),
        "tiles_s": figures.median(tiles),
        "agree_s": figures.median(figures.slowest(ranks, "both", "agree")),
        "overhead_per_step_s": figures.interval([(a - b) / len(ranks) for a, b in zip(both, tiles)]),
    }


def print_step(name, row, beside=""):
    step, us = row["overhead_per_step_s"], 1e6
    print(
        f"  {name:5s}  {row['block_bytes']:6d}  {row['execution_s']['median'] * us:12.2f}  {row['agree_s'] * us:8.2f}"
        f"  {row['tiles_s'] * us:8.2f}  {row['alone_s']['median'] * us:8.2f}"
        f"  {step['median'] * us:8.2f} [{step['low'] * us:.2f}, {step['high'] * us:.2f}]  {beside}"
    )


def beside(workers, transport, size, pairs, calls):
    """What else carries as many bytes in this run: (seconds one way, text)."""
    own = ucx_latency(LANES[transport], size, 100 * calls)
    found = {} if own is None else {"ucx_perftest": own[0]}
    text = "no ucx_perftest" if own is None else f"ucx_perftest {own[0] * 1e6:.2f} (mean {own[1] * 1e6:.2f})"
    if transport == "tcp":
        one_way = workers.alone(["wire", f"pairs={pairs}", f"calls={calls}", str(size)])[0][0]["one_way"]
        found["socket"] = figures.interval(one_way)
        text += f", plain socket {found['socket']['median'] * 1e6:.2f}"
    return found, text


def step_section(workers, pairs, calls, verdicts):
    if len(os.sched_getaffinity(0)) < 2:
        raise Unavailable("two ranks need a core each")
    words = ["step", "pin", f"pairs={pairs}", f"calls={calls}", *STEPS]
    print(
        f"\none execution of 2 ranks with one token each, every rank on its own core; microseconds, {pairs} batches of {calls}"
    )
    print(
        "  over   bytes     execution     agree     tiles  one rank  overhead of a step [95 %]   one message, one way"
    )
    rows = {"local": [step_row(case) for case in workers.alone(["threads", *words[1:]])]}
    for row in rows["local"]:
        print_step("local", row)
    for transport in ("ucx", "tcp"):
        rows[transport] = [step_row(case) for case in workers.on_one_host(transport, 2, words)]
        for row in rows[transport]:
            row["beside"], text = beside(workers, transport, row["block_bytes"], pairs, calls)
            print_step(transport, row, text)
    judge(verdicts, "local: overhead of a step", rows["local"][0]["overhead_per_step_s"]["high"], 5e-6, " us", 1e6)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=31, help="repetitions of each case [31]")
    parser.add_argument(
        "--calls", type=int, default=1000, help="executions of one batch where a single one is too short [1000]"
    )
    parser.add_argument("--only", choices=["step", "host", "link"], help="one part of it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # namespaces are taken down on the way out
    workers = Workers(options.build)
    result, verdicts, missing = {"step": {}, "one_host": [], "link": {}}, [], []

    def attempt(name, section):
        if options.only in (None, name.split(",")[0]):
            try:
                return section()
            except Unavailable as why:
                print(f"\n{name}: not measured: {why}")
                missing.append(name)
        return None

    print(LEGEND)
    result["step"] = attempt("step", lambda: step_section(workers, options.pairs, options.calls, verdicts))
    for transport in ("ucx", "tcp"):
        for ranks in (2, 4) if options.only in (None, "host") else ():
            rows = overlap_rows(functools.partial(workers.on_one_host, transport, ranks), options.pairs, ONE_HOST)
            print_rows(f"{transport}, one host, {ranks} processes on {os.cpu_count()} cores", rows)
            result["one_host"].append({"transport": transport, "rows": rows})
    for transport in ("ucx", "tcp"):
        section = attempt(
            f"link, {transport}", functools.partial(link_section, workers, transport, options.pairs, verdicts)
        )
        if section is not None:
            result["link"][transport] = section
    if result["link"]:
        figures.plot(result["link"], "ring.svg")
    result["verdicts"] = verdicts
    pathlib.Path("ring.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\nwritten: ring.json" + (", ring.svg" if result["link"] else ""))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
