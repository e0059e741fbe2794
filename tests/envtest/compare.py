"""Compares the reports of suites on two servers: compare.py FOLDER DIFFERENCES BOTH SUITE...

Each spec that passes on the real server must pass on ours, unless DIFFERENCES lists it; without a run on the real server each spec that
runs must pass.
"""

import json
import re
import sys

MOST_DIFFERENCES = 10
# Specs of a suite that may need a second or third try on ours, beyond those that need one on the real server.
MOST_AGAIN = 5

PLAIN = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
# Ginkgo's first line follows that of the function which runs it.
RUNS_SPECS = re.compile(r"^=== (?:RUN|CONT) +(\S+)\nRunning Suite", re.MULTILINE)
STATES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def specs(path):
    """The states of the specs in a report, by their texts."""
    found = {}
    for suite in json.load(open(path)):
        for spec in suite["SpecReports"] or []:
            texts = (spec["ContainerHierarchyTexts"] or []) + [spec["LeafNodeText"] or spec["LeafNodeType"]]
            name = " ".join(text.replace("\t", " ") for text in texts)
            # Tables have several specs of one text: the worst state counts.
            if found.get(name, ("passed",))[0] in ("passed", "pending", "skipped"):
                found[name] = (spec["State"], spec.get("Failure", {}).get("Message", ""), spec["NumAttempts"])
    return found


def functions(path):
    """The states of the test functions, and of their parts, in a log, by their names, without the one that runs the specs: their states are its state."""
    results = PLAIN.findall(open(path, errors="replace").read())
    runs_specs = RUNS_SPECS.search(open(path, errors="replace").read())
    return {name: (STATES[state], f"see {path}", 1) for state, name in results if not runs_specs or name != runs_specs[1]}


def results(folder, server, suite):
    name = f"{folder}/{server}-{suite.replace('/', '-')}"
    return specs(f"{name}.json") | functions(f"{name}.log")


def listed(path):
    """The specs of the list, by suite and text, with their reasons."""
    lines = [line.rstrip("\n") for line in open(path)]
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return {(suite, text): reason for suite, text, reason in rows}


def seconds(folder, server, suite):
    return int(open(f"{folder}/{server}-{suite.replace('/', '-')}.ms").read()) / 1000


def tried_again(expected, results):
    return sum(1 for name in expected if results.get(name, ("", "", 1))[2] > 1)


def main(folder, differences, both, *suites):
    excused = listed(differences)
    problems = [] if len(excused) <= MOST_DIFFERENCES else [f"{len(excused)} listed differences, at most {MOST_DIFFERENCES}"]
    print("| suite | specs and tests | pass on ours | tried again | seconds, real | seconds, ours |")
    print("|---|---|---|---|---|---|")
    for suite in suites:
        ours = results(folder, "ours", suite)
        real = results(folder, "real", suite) if both == "yes" else None
        expected = {name for name, state in (real or ours).items() if state[0] != "pending" and state[0] != "skipped"}
        if real:
            expected = {name for name in expected if real[name][0] == "passed"}
        if not expected:
            problems.append(f"{suite}: no spec passes on the real server")
        passed = {name for name in expected if ours.get(name, ("missing",))[0] == "passed"}
        again = tried_again(expected, ours)
        if again > MOST_AGAIN + (tried_again(expected, real) if real else 0):
            problems.append(f"{suite}: {again} specs were tried again")
        for name in sorted(expected - passed):
            state, message, _ = ours.get(name, ("missing", "", 0))
            if (suite, name) not in excused:
                problems.append(f"{suite}: {state}: {name}\n    {message[:400]}")
        for of, name in excused:
            if of == suite and name in passed:
                problems.append(f"{suite}: listed as a difference, and passes: {name}")
        time = f"{seconds(folder, 'real', suite):.1f}" if real else "-"
        print(f"| pkg/{suite} | {len(expected)} | {len(passed)} | {again} | {time} | {seconds(folder, 'ours', suite):.1f} |")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main(*sys.argv[1:]))
