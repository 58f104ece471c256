#!/usr/bin/env python3
"""`./dev bench ring`: what of a ring's transfers the computing hides, over tcp and ucx, on one host and over a link of 1 Gbit/s.

Prints a table, writes ring.json and ring.svg to the current folder. Every time is compared with another one of the same run."""
import argparse
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys

from hosts import Hosts, Unavailable

# K/V of one token at 8 heads of 64 in f32 are 4 KiB.
ONE_HOST = ["512", "1024"]
LINK = ["128", "256", "512", "1024", "1536"]
# Many query heads share one kv head: next to nothing to transfer, so what is left is the cost of the polling.
POLLING = "1024:32:1:64"
LIMIT_S = 900


def environment(extra):
    own = {name: value for name, value in os.environ.items() if not name.startswith("RINGATTN_")}
    return {**own, **extra}


def lines_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def run_one_host(build, transport, ranks, words):
    command = [build / "bin/ringattn", "run", "-n", str(ranks), "--no-prefix", "--",
               build / "bin/ringattn_ring_worker", *words]
    done = subprocess.run(command, env=environment({"RINGATTN_TRANSPORT": transport}), capture_output=True, text=True,
                          timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{transport}, {ranks} ranks: {done.stderr.strip() or done.returncode}")
    return lines_of(done.stdout)


def run_on_hosts(build, hosts, transport, words):
    common = {"RINGATTN_WORLD_SIZE": str(hosts.count), "RINGATTN_RENDEZVOUS": f"{hosts.address(0)}:7171",
              "RINGATTN_SECRET": secrets.token_hex(16), "RINGATTN_TRANSPORT": transport}
    ranks = []
    for host in range(hosts.count):
        command = hosts.inside(host, ["taskset", "-c", str(host % os.cpu_count()),
                                      str(build / "bin/ringattn_ring_worker"), *words])
        ranks.append(subprocess.Popen(command, env=environment({**common, "RINGATTN_RANK": str(host)}),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise RuntimeError(f"{transport} over the link: " + "; ".join(err.strip() for _, err in outputs if err))
    return lines_of(outputs[0][0])


def predicted_threshold(row):
    """Tokens per rank from which the plan says that a transfer is hidden, with the rates of this row."""
    wanted = row["compute_flops_per_s"] / row["link_bytes_per_s"]
    return row["tokens_per_rank"] * wanted / row["overlap_flops_per_byte"]


def exposed_share(row):
    return max(0.0, row["both_s"] - row["compute_s"]) / row["both_s"]


def measured_threshold(rows):
    """The least tokens per rank whose step costs at most 2 % more than its computing; None = more than all tried."""
    hidden = [row["tokens_per_rank"] for row in rows if row["both_over_compute"]["median"] <= 1.02]
    return min(hidden) if hidden else None


def print_rows(title, rows):
    print(f"\n{title}")
    print("  tokens/rank  compute ms  transfer ms  both ms  both/compute [95 %]     exposed of step")
    for row in rows:
        ratio = row["both_over_compute"]
        print(f"  {row['tokens_per_rank']:11d}  {row['compute_s'] * 1e3:10.2f}  {row['transfer_s'] * 1e3:11.2f}"
              f"  {row['both_s'] * 1e3:7.2f}  {ratio['median']:6.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
              f"   {exposed_share(row) * 100:6.1f} %")


def judge(name, value, limit):
    """`value` is the worse end of its interval, as a ratio."""
    reached = value <= limit
    print(f"  {name}: {value:.4f}, goal <= {limit}: {'reached' if reached else 'not reached'}")
    return {"goal": name, "value": value, "limit": limit, "reached": reached}


def link_section(build, transport, pairs, verdicts):
    with Hosts(2, "1gbit") as hosts:
        rows = run_on_hosts(build, hosts, transport, [f"pairs={pairs}", *LINK])
        threshold = max(predicted_threshold(row) for row in rows[-3:])
        twice = str(max(64, round(2 * threshold / 64) * 64))
        extra = run_on_hosts(build, hosts, transport, [f"pairs={max(pairs, 31)}", twice, POLLING])
    print_rows(f"{transport}, 2 hosts, 1 Gbit/s", rows)
    measured = measured_threshold(rows)
    print(f"  threshold: predicted {threshold:.0f} tokens per rank, measured "
          f"{'more than all tried' if measured is None else measured}")
    print_rows(f"{transport}, 2 hosts, at twice the threshold; and with next to nothing to transfer", extra)
    verdicts.append(judge(f"{transport}: step at twice the threshold over its computing",
                          extra[0]["both_over_compute"]["high"], 1.02))
    verdicts.append(judge(f"{transport}: step with next to nothing to transfer over its computing",
                          extra[1]["both_over_compute"]["high"], 1.01))
    return {"rows": rows, "extra": extra, "predicted_threshold": threshold, "measured_threshold": measured}


def plot(sections, path):
    """Exposed share over tokens per rank, with the predicted threshold, as a plain SVG."""
    width, height, left, bottom = 640, 360, 60, 40
    most = max(row["tokens_per_rank"] for section in sections.values() for row in section["rows"])
    x = lambda tokens: left + (width - left - 20) * tokens / most
    y = lambda share: height - bottom - (height - bottom - 20) * min(share, 1)
    colours = {"tcp": "#1f6fb4", "ucx": "#c4572e"}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<text x="{left - 8}" y="{y(share) + 4}" text-anchor="end">{share:.0%}</text>'
                     f'<line x1="{left}" x2="{width - 20}" y1="{y(share)}" y2="{y(share)}" stroke="#ddd"/>')
    for at, (name, section) in enumerate(sections.items()):
        points = " ".join(f"{x(row['tokens_per_rank']):.1f},{y(exposed_share(row)):.1f}" for row in section["rows"])
        line = x(min(section["predicted_threshold"], most))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="2"/>'
                     f'<line x1="{line:.1f}" x2="{line:.1f}" y1="20" y2="{height - bottom}" stroke="{colours[name]}" '
                     f'stroke-dasharray="4 4"/><text x="{width - 24}" y="{40 + 16 * at}" text-anchor="end" '
                     f'fill="{colours[name]}">{name}: exposed part of a step; dashed: predicted threshold</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">tokens per rank, up to {most}</text></svg>')
    pathlib.Path(path).write_text("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=31, help="repetitions of each case [31]")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # namespaces are taken down on the way out
    result, verdicts, failed = {"one_host": [], "link": {}}, [], False
    for transport in ("ucx", "tcp"):
        for ranks in (2, 4):
            rows = run_one_host(options.build, transport, ranks, [f"pairs={options.pairs}", *ONE_HOST])
            print_rows(f"{transport}, one host, {ranks} processes on {os.cpu_count()} cores", rows)
            result["one_host"].append({"transport": transport, "rows": rows})
    for transport in ("ucx", "tcp"):
        try:
            result["link"][transport] = link_section(options.build, transport, options.pairs, verdicts)
        except Unavailable as why:
            print(f"\n{transport} over a link: not measured: {why}")
            failed = True
    if result["link"]:
        plot(result["link"], "ring.svg")
    result["verdicts"] = verdicts
    pathlib.Path("ring.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\nwritten: ring.json" + (", ring.svg" if result["link"] else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
