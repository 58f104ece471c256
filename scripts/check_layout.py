#!/usr/bin/env python3
"""tests/abi/offsets_test.c states the layout of every public struct. Without arguments: fails for a field of the
headers that it does not state. --update: writes it anew from this machine's compiler (look at the diff: a
changed line is a break of the ABI, only added fields and grown sizes are not)."""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST = ROOT / "tests/abi/offsets_test.c"


def structs():
    """(struct, its fields) in the order of the headers."""
    found = []
    parts = ("backward", "inspect", "processes", "shards", "transport")
    for header in ("ringattn.h", *(f"ringattn/{part}.h" for part in parts)):
        text = re.sub(r"/\*.*?\*/", " ", (ROOT / "include" / header).read_text(), flags=re.DOTALL)
        for match in re.finditer(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, re.DOTALL):
            fields = []
            for line in filter(None, (part.strip() for part in match[2].split(";"))):
                pointer = re.search(r"\(\*(\w+)\)", line)
                fields.append(pointer[1] if pointer else re.search(r"(\w+)(\[\w+\])*$", line)[1])
            found.append((match[1], fields))
    return found


def update():
    program = '#include <stdio.h>\n#include <stddef.h>\n#include "ringattn/transport.h"\nint main(void) {\n'
    for name, fields in structs():
        program += f'printf("\\nSIZE({name}, %zu);\\n", sizeof({name}));\n'
        for field in fields:
            program += f'printf("AT({name}, {field}, %zu);\\n", offsetof({name}, {field}));\n'
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "layout.c")
        source.write_text(program + "}\n")
        subprocess.run(["cc", f"-I{ROOT}/include", source, "-o", source.with_suffix("")], check=True)
        lines = subprocess.run([source.with_suffix("")], check=True, capture_output=True, text=True).stdout
    head = TEST.read_text()
    TEST.write_text(head[: head.index("\nSIZE(")] + lines)


def main():
    if sys.argv[1:] == ["--update"]:
        update()
    stated = set(re.findall(r"^AT\((\w+), (\w+),", TEST.read_text(), re.MULTILINE))
    declared = {(name, field) for name, fields in structs() for field in fields}
    for name, field in sorted(declared - stated):
        print(f"{name}.{field}: not in tests/abi/offsets_test.c")
    return 1 if declared - stated or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
