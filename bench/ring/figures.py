"""What is made of the samples of all ranks: medians with their intervals, and the plot."""

import math
import pathlib


def median(values):
    return sorted(values)[len(values) // 2]


def interval(values):
    """The median with its 95 % interval, by the order of the values: exact for any distribution."""
    values = sorted(values)
    low = max(math.ceil(len(values) / 2 - 0.98 * math.sqrt(len(values))), 1) - 1
    return {"median": values[len(values) // 2], "low": values[low], "high": values[-1 - low]}


def slowest(ranks, what, part="whole"):
    """A step ends when its slowest rank does: of each repetition, the longest time."""
    return [max(each) for each in zip(*(rank[what][part] for rank in ranks))]


def total(ranks, what, part):
    return [sum(each) for each in zip(*(rank[what][part] for rank in ranks))]


def polling_shares(ranks):
    """Of each repetition: time in polls between tiles over time in tiles, as the library counts both, of all ranks. Both
    within one execution, so what slows down the machine slows down both."""
    return [polls / tiles for polls, tiles in zip(total(ranks, "both", "polls"), total(ranks, "both", "tiles"))]


def merge(first, more):
    """The samples of two runs of one case."""
    for rank, again in zip(first, more):
        for what in ("both", "transfer", "compute"):
            for part in rank.get(what, {}):
                rank[what][part] += again[what][part]
    return first


def overlap_row(ranks):
    """The figures of one case from what its ranks have measured."""
    own = ranks[0]
    both, compute, transfer = (slowest(ranks, what) for what in ("both", "compute", "transfer"))
    compute_s, transfer_s = median(compute), median(transfer)
    tiles = [a / b for a, b in zip(total(ranks, "both", "tiles"), total(ranks, "compute", "tiles"))]
    exposed = [a / b for a, b in zip(total(ranks, "both", "exposed"), total(ranks, "both", "whole"))]
    return {
        **{name: own[name] for name in ("tokens_per_rank", "heads", "kv_heads", "dim", "overlap_flops_per_byte")},
        "ranks": len(ranks),
        "pairs": len(both),
        "bytes_received": own["bytes_received"],
        "both_s": median(both),
        "compute_s": compute_s,
        "transfer_s": transfer_s,
        "agree_s": median(slowest(ranks, "both", "agree")),
        "both_over_compute": interval([a / b for a, b in zip(both, compute)]),
        "both_over_longer": interval([a / max(b, c) for a, b, c in zip(both, compute, transfer)]),
        "exposed_wait": interval(exposed),  # nothing to compute: of the whole step, as the library counts it
        "tiles_over_alone": interval(tiles),  # the same tiles beside the transfer over alone
        "polling": interval(polling_shares(ranks)),
        "compute_flops_per_s": own["flops"] / compute_s,
        "link_bytes_per_s": own["bytes_received"] / transfer_s,
    }


def predicted_threshold(row):
    """Tokens per rank from which the plan says that a transfer is hidden, with the rates of this row."""
    wanted = row["compute_flops_per_s"] / row["link_bytes_per_s"]
    return row["tokens_per_rank"] * wanted / row["overlap_flops_per_byte"]


def exposed_share(row):
    return max(0.0, 1 - 1 / row["both_over_compute"]["median"])


def measured_threshold(rows):
    """The least tokens per rank whose step costs at most 2 % more than its computing; None = more than all tried."""
    hidden = [row["tokens_per_rank"] for row in rows if row["both_over_compute"]["median"] <= 1.02]
    return min(hidden) if hidden else None


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 360, 60, 40
COLOURS = {"tcp": "#1f6fb4", "ucx": "#c4572e"}


def plot(sections, path):
    """Exposed share over tokens per rank, with the predicted and the measured threshold, as a plain SVG."""
    most = max(row["tokens_per_rank"] for section in sections.values() for row in section["rows"])
    x = lambda tokens: LEFT + (WIDTH - LEFT - 20) * tokens / most
    y = lambda share: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 20) * min(share, 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<text x="{LEFT - 8}" y="{y(share) + 4}" text-anchor="end">{share:.0%}</text>'
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(share)}" y2="{y(share)}" stroke="#ddd"/>'
        )
    for at, (name, section) in enumerate(sections.items()):
        points = " ".join(f"{x(row['tokens_per_rank']):.1f},{y(exposed_share(row)):.1f}" for row in section["rows"])
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
            f'<text x="{WIDTH - 24}" y="{40 + 16 * at}" text-anchor="end" fill="{COLOURS[name]}">{name}: '
            f"exposed part of a step; threshold: dashed predicted, dotted measured</text>"
        )
        for value, dashes in ((section["predicted_threshold"], "6 4"), (section["measured_threshold"], "1 3")):
            if value is None:
                continue
            at_x = x(min(value, most))
            parts.append(
                f'<line x1="{at_x:.1f}" x2="{at_x:.1f}" y1="20" y2="{HEIGHT - BOTTOM}" '
                f'stroke="{COLOURS[name]}" stroke-dasharray="{dashes}"/>'
            )
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens per rank, up to {most}</text></svg>'
    )
    pathlib.Path(path).write_text("\n".join(parts) + "\n")
