#!/usr/bin/env python3
"""Reads file names from standard input; fails for each that is longer than argv[1] lines. Data files do not count."""

import pathlib
import sys

limit = int(sys.argv[1])
failed = False
for name in sys.stdin.read().splitlines():
    path = pathlib.Path(name)
    if path.suffix in (".txt", ".json", ".svg", ".filter"):
        continue
    count = path.read_bytes().count(b"\n")
    if count > limit:
        print(f"{name}: {count} lines, at most {limit}")
        failed = True
sys.exit(failed)
