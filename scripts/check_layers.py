#!/usr/bin/env python3
"""Checks that #include lines follow the data's path: each folder includes only what the table below lets it."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folders of src/ that a folder of src/ may include, besides itself and the public headers.
MAY_USE = {
    "base": set(),
    "trace": {"base"},
    "schedule": {"base"},
    "kernels": {"base"},
    "comm": {"base"},
    "plan": {"schedule", "kernels", "comm", "base"},
    "ring": {"schedule", "kernels", "comm", "plan", "trace", "base"},
    "api": {"schedule", "kernels", "comm", "plan", "ring", "trace", "base"},
}
PUBLIC = {"ringattn.h", "ringattn/transport.h"}
# Public headers that a folder of src/ may include; the others get ringattn.h only.
MAY_USE_TRANSPORT = {"comm", "api"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def ours(file, name):
    """The included file relative to the repository, or None for a header of somebody else."""
    public = ROOT / "include" / name
    if name in PUBLIC or public.exists():
        return public.relative_to(ROOT)
    for base in (file.parent, ROOT / "src", ROOT):
        candidate = (base / name).resolve()
        if candidate.is_file() and ROOT in candidate.parents:
            return candidate.relative_to(ROOT)
    return None


def allowed(file, target):
    """None when `file` (relative to the repository) may include `target`, else the rule that it breaks."""
    top, folder = file.parts[0], file.parts[1]
    public = target.parts[0] == "include"
    header = "/".join(target.parts[1:])
    if top == "include":
        return None if public else "public headers include only public headers"
    if top == "transports":
        if public:
            return None
        # ucx is tcp with a carrier.
        same = target.parts[:2] == file.parts[:2] or (folder == "ucx" and target.parts[:2] == ("transports", "tcp"))
        return None if same else "a transport includes only ringattn/transport.h and its own files"
    if top == "tools":
        if public and header != "ringattn.h":
            return "tools use ringattn.h only"
        shared = target.parts[:2] in (file.parts[:2], ("tests", "support"))
        return None if public or shared else "a tool includes only ringattn.h, tests/support and its own files"
    # src/
    if public:
        if header != "ringattn.h" and folder not in MAY_USE_TRANSPORT:
            return f"{folder} does not use {header}"
        return None
    if target.parts[0] != "src":
        return "src includes nothing from outside src and include"
    if target.parts[1] == folder or target.parts[1] in MAY_USE[folder]:
        return None
    return f"{folder} may use only: {', '.join(sorted(MAY_USE[folder])) or 'nothing'}"


def main():
    errors = []
    for top in ("include", "src", "transports", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".c", ".hpp", ".inc"):
                continue
            file = path.relative_to(ROOT)
            if top == "src" and file.parts[1] not in MAY_USE:
                errors.append(f"{file}: unknown folder, add it to {pathlib.Path(__file__).name}")
                continue
            text = path.read_text()
            for match in INCLUDE.finditer(text):
                target = ours(path, match[1])
                rule = allowed(file, target) if target else None
                if rule:
                    line = text.count("\n", 0, match.start(1)) + 1
                    errors.append(f"{file}:{line}: includes {match[1]}: {rule}")
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
