#!/usr/bin/env python3
"""Exports: the functions that the public headers declare = the export map = what the library defines.

check_exports.py                     header against map
check_exports.py --library FILE.so   and both against the dynamic symbols of the library
check_exports.py --update            writes the map's names anew from the headers
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = ROOT / "src/api/libringattn.map"


def declared():
    names = set()
    for header in sorted((ROOT / "include").rglob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.DOTALL)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        names |= set(re.findall(r"\bRINGATTN_API\b[^;(]*?\b(ringattn_\w+)\s*\(", text))
    return names


def mapped():
    text = re.sub(r"/\*.*?\*/", " ", MAP.read_text(), flags=re.DOTALL)
    return set(re.findall(r"^\s*(ringattn_\w+);", text, flags=re.MULTILINE))


def version_node():
    header = (ROOT / "include/ringattn.h").read_text()
    major, minor = (re.search(rf"RINGATTN_VERSION_{part}\s+(\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    return f"RINGATTN_{major}.{minor}"


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in out.splitlines()]
    # absolute symbols (type A) are the version nodes themselves
    return {fields[2].split("@")[0] for fields in symbols if len(fields) == 3 and fields[1] != "A"}


def update():
    lines = [
        "/* Exactly the functions that the public headers declare; scripts/check_exports.py --update writes it. */",
        f"{version_node()} {{",
        "  global:",
        *(f"    {name};" for name in sorted(declared())),
        "  local:",
        "    *;",
        "};",
    ]
    MAP.write_text("\n".join(lines) + "\n")


def differ(first_name, first, second_name, second):
    for name in sorted(first - second):
        print(f"{name}: in {first_name}, not in {second_name}")
    for name in sorted(second - first):
        print(f"{name}: in {second_name}, not in {first_name}")
    return first != second


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.update:
        update()
    failed = differ("the headers", declared(), "libringattn.map", mapped())
    if args.library:
        failed |= differ("libringattn.map", mapped(), "the library", exported(args.library))
    if not declared():
        print("the headers declare nothing")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
