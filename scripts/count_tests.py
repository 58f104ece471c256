#!/usr/bin/env python3
"""Adds up the test results of one folder and ends with `N passed, N failed, N skipped`.

A result NAME is what a test program left: NAME.xml (GoogleTest or CTest's JUnit form), NAME.log (what it
printed) and NAME.rc (its exit status). A program that died before it wrote its XML is counted from its log, and the
test it died in counts as failed. NAME.rc alone is a build that broke. Exit status 1 when anything failed,
a group ran no test, or nothing ran at all.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


class Result:
    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failed = []  # (test, message)
        self.skipped = []  # (test, reason)

    def count(self):
        return self.passed + len(self.failed) + len(self.skipped)


def some_lines(text, first=None, last=None):
    lines = [line.rstrip() for line in (text or "").strip().splitlines() if line.strip()]
    return "\n".join(lines[:first] if first else lines[-last:])


def skip_reason(element):
    """GoogleTest writes FILE:LINE before the words of a skip; the words are what is wanted."""
    lines = [line.strip() for line in (element.get("message") or element.text or "").splitlines()]
    words = [line for line in lines if line and not re.search(r"\.(cpp|h|cc):\d+$", line) and line != "Skipped"]
    return " ".join(words) or "no reason given"


def read_xml(result, path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        names = [case.get("classname"), case.get("name")]
        test = names[1] if names[0] == names[1] else ".".join(names)
        failures = case.findall("failure") + case.findall("error")
        skip = case.find("skipped")
        if failures:
            printed = case.findtext("system-out")  # CTest's form only
            detail = failures[0].get("message") or failures[0].text
            result.failed.append((test, some_lines(printed, last=12) if printed else some_lines(detail, first=8)))
        elif skip is not None or case.get("result") == "skipped":
            result.skipped.append((test, skip_reason(skip) if skip is not None else "no reason given"))
        elif case.get("status") in ("notrun", "disabled") or case.get("result") == "suppressed":
            result.skipped.append((test, "disabled"))
        else:
            result.passed += 1


def read_log(result, path):
    """For a program that died: the lines that GoogleTest printed so far."""
    text = path.read_text(errors="replace")
    running, words = None, "no reason given"
    for line in text.splitlines():
        match = re.match(r"\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] (\S+?)(?:,| \(|$)", line)
        if not match or (match[1] != "RUN" and match[2] != running):
            words = line.strip() or words
            continue
        running = match[2] if match[1] == "RUN" else None
        if match[1] == "OK":
            result.passed += 1
        elif match[1] == "FAILED":
            result.failed.append((match[2], "failed"))
        elif match[1] == "SKIPPED":
            result.skipped.append((match[2], words))
    report = re.search(r"^.*(ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:)", text, re.MULTILINE)
    lines = text[report.start() :].splitlines()[:30] if report else text.splitlines()[-12:]
    return running, "\n".join(lines)


def read_result(folder, name):
    result = Result(name)
    xml, log, rc = (folder / f"{name}{end}" for end in (".xml", ".log", ".rc"))
    status = int(rc.read_text()) if rc.exists() else -1
    if xml.exists():
        read_xml(result, xml)
        if status != 0 and not result.failed:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:]) if log.exists() else ""
            result.failed.append((f"{name}: exit status {status} though no test failed", tail))
    elif log.exists():
        running, tail = read_log(result, log)
        why = "ran out of time" if status in (124, 137) else f"died, exit status {status}"
        result.failed.append((running or f"{name} (outside any test)", f"{why}\n{tail}"))
    else:
        result.failed.append((name, "broke; see the output above"))
    return result


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sorted({path.name.rsplit(".", 1)[0] for path in folder.glob("*.rc")})
    results = [read_result(folder, name) for name in names]

    groups = collections.defaultdict(int)
    for result in results:
        groups[re.sub(r"-\d+$", "", result.name)] += result.count()
    for group, count in groups.items():
        if count == 0:
            empty = Result(group)
            empty.failed.append((group, "ran no test: does its filter still match?"))
            results.append(empty)

    for result in results:
        for test, message in result.failed[:20]:
            print(f"FAILED {test} [{result.name}]")
            for line in message.splitlines():
                print(f"    {line}")
        if len(result.failed) > 20:
            print(f"... and {len(result.failed) - 20} more in {result.name}")

    reasons = collections.Counter(reason for result in results for _, reason in result.skipped)
    for reason, count in sorted(reasons.items()):
        print(f"skipped {count}: {reason}")

    passed = sum(result.passed for result in results)
    failed = sum(len(result.failed) for result in results)
    print(f"{passed} passed, {failed} failed, {sum(reasons.values())} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
