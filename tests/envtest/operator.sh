#!/usr/bin/env bash
# Writes the project of docs/go-operator.md from that page, and runs its tests on our server and on the real pair in turn.
#
#   tests/envtest/operator.sh [ROUNDS]   rounds on each server (default: 1); prints the median times
#   REEVE_PROFILE=release                the build of our server (default: debug)
#
# Needs Go, the module proxy and Python 3.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"
rounds=${1:-1}
project="$root/target/envtest-operator"
rm -rf "$project"
python3 - "$root/docs/go-operator.md" "$project" << 'END'
import os, re, sys
page, project = sys.argv[1:]
files = re.findall(r"^File `([^`]+)`:\n\n```\w+\n(.*?)^```$", open(page).read(), re.M | re.S)
assert len(files) == 4, f"the page has {len(files)} files"
for path, text in files:
    path = os.path.join(project, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
END
cd "$project"
export GOFLAGS="-buildvcs=false" CGO_ENABLED=0
{
    go mod init example.com/pages
    go get sigs.k8s.io/controller-runtime@v0.25.2
    # Less than `go mod tidy`, which also downloads what the tests of all dependencies need.
    go get -t ./...
    test -z "$(gofmt -l .)" || fail "gofmt: $(gofmt -l .)"
    go vet ./...
    go test -c -o "$project/page.test" ./controller
} >&2
ours="$(ours)"
real="$(real)"
for ((round = 1; round <= rounds; round++)); do
    for server in real ours; do
        begin=$(milliseconds)
        (cd controller && KUBEBUILDER_ASSETS="${!server}" "$project/page.test" -test.v) > "$project/$server-$round.log" 2>&1 ||
            { cat "$project/$server-$round.log"; fail "the tests on $server"; }
        [[ "$(grep -c '^--- PASS' "$project/$server-$round.log")" == 3 ]] || fail "three tests pass on $server"
        echo "all $(($(milliseconds) - begin))" >> "$project/$server.times"
        sed -n 's/^ready with definitions after \([0-9]*\) ms/ready \1/p; s/^stopped after \([0-9]*\) ms/stop \1/p' \
            "$project/$server-$round.log" >> "$project/$server.times"
    done
done
python3 - "$project" "$rounds" << 'END'
import statistics, sys
project, rounds = sys.argv[1:]
print(f"median of {rounds}, milliseconds:")
for server in ("real", "ours"):
    rows = [line.split() for line in open(f"{project}/{server}.times")]
    median = lambda name: round(statistics.median(int(value) for of, value in rows if of == name))
    print(f"{server}: ready with definitions {median('ready')}, stop {median('stop')}, whole test binary {median('all')}")
END
