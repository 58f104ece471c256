"""What `python -m ringattn info` prints."""

from __future__ import annotations

import json
import sys
from importlib import metadata, util

from . import core


def version() -> str:
    number = core.version()
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


def build_info() -> dict:
    """The library's build, kernels, transports and environment, as it was when first asked."""
    return json.loads(core.build_info())


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["info"], ["info", "--json"]):
        print("usage: python -m ringattn [info [--json]]", file=sys.stderr)
        return 2
    if "--json" in arguments:
        print(core.build_info())
        return 0
    print(f"ringattn {version()}, Python {sys.version.split()[0]}, {core.__file__.rpartition('/')[0]}")
    for name in ("numpy", "torch", "transformers", "jax", "ml_dtypes"):
        found = util.find_spec(name) is not None
        print(f"  {name}: {metadata.version(name) if found else 'not installed'}")
    for name, value in build_info().items():
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return 0
