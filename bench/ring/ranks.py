"""Runs the ranks of `./dev bench ring`, and UCX's own test beside them."""

import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time

LIMIT_S = 900


def environment(extra):
    own = {name: value for name, value in os.environ.items() if not name.startswith("RINGATTN_")}
    return {**own, **extra}


def read_ranks(folder):
    """For each case what its ranks have written."""
    count = len(os.listdir(folder))
    files = [pathlib.Path(folder, f"{rank}.jsonl").read_text().splitlines() for rank in range(count)]
    return [[json.loads(line) for line in lines] for lines in zip(*files)]


class Workers:
    def __init__(self, build):
        self.worker = str(build / "bin/ringattn_ring_worker")

    def run(self, ranks, words, extra=lambda rank: {}, inside=lambda rank, command: command):
        """Starts `ranks` processes; what each case of each has measured."""
        with tempfile.TemporaryDirectory() as folder:
            command = [self.worker, *words, f"out={folder}"]
            running = [
                subprocess.Popen(
                    inside(rank, command),
                    env=environment(extra(rank)),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(ranks)
            ]
            try:
                errors = [each.communicate(timeout=LIMIT_S)[1].strip() for each in running]
            finally:
                for each in running:
                    each.kill()
            if any(each.returncode != 0 for each in running):
                raise RuntimeError(f"{' '.join(words)}: " + "; ".join(filter(None, errors)))
            return read_ranks(folder)

    def alone(self, words):
        """One process that does it all."""
        return self.run(1, words)

    def on_one_host(self, transport, ranks, words):
        return self.run(ranks, words, self.ring(transport, ranks, f"127.0.0.1:{free_port()}"))

    def on_hosts(self, hosts, transport, words):
        extra = self.ring(transport, hosts.count, f"{hosts.address(0)}:7171")
        return self.run(hosts.count, ["pin", *words], extra, hosts.inside)

    @staticmethod
    def ring(transport, ranks, rendezvous):
        common = {
            "RINGATTN_WORLD_SIZE": str(ranks),
            "RINGATTN_RENDEZVOUS": rendezvous,
            "RINGATTN_TRANSPORT": transport,
            "RINGATTN_SECRET": secrets.token_hex(16),
        }
        return lambda rank: {**common, "RINGATTN_RANK": str(rank)}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ucx_latency(lanes, size, iterations):
    """Seconds that UCX's own test says a message takes one way between two processes: (median, average). None: not to be
    had."""
    program = shutil.which("ucx_perftest")
    if program is None:
        return None
    cores = sorted(os.sched_getaffinity(0))
    port, own = str(free_port()), {**os.environ, "UCX_TLS": lanes, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    words = [program, "-p", port]
    server = subprocess.Popen(
        [*words, "-c", str(cores[0])], env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(50):  # until the other end listens
            time.sleep(0.05)
            client = subprocess.run(
                [
                    *words,
                    "127.0.0.1",
                    "-c",
                    str(cores[1 % len(cores)]),
                    "-t",
                    "tag_lat",
                    "-s",
                    str(size),
                    "-n",
                    str(iterations),
                    "-f",
                    "-v",
                ],
                env=own,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            # CSV: iterations, median, average and overall latency in microseconds, ...
            rows = [line.split(",") for line in client.stdout.splitlines() if re.match(r"\s*\d+\s*,", line)]
            if rows:
                return float(rows[-1][1]) * 1e-6, float(rows[-1][2]) * 1e-6
            if server.poll() is not None:
                return None
        return None
    finally:
        server.terminate()
        server.wait()
