#!/usr/bin/env bash
# Makes the project of docs/go-operator.md as that page says, and runs its tests on our server and on the real pair in turn.
#
#   tests/envtest/operator.sh [ROUNDS]   rounds on each server (default: 1); prints the median times
#   REEVE_PROFILE=release                the build of our server (default: debug)
#
# Needs Go, make, the module proxy and Python 3.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"
rounds=${1:-1}
project="$root/target/envtest-operator"
rm -rf "$project"
mkdir -p "$project"
cd "$project"
export GOFLAGS="-buildvcs=false" CGO_ENABLED=0 GOBIN="$root/target/envtest-tools"
page="$root/docs/go-operator.md"
kubebuilder="$(sed -n 's/^go install \(sigs.k8s.io\/kubebuilder.*\)$/\1/p' "$page")"
{
    go install "$kubebuilder"
    sed -n 's/^kubebuilder //p' "$page" | while read -r arguments; do
        # shellcheck disable=SC2086 # the page's arguments are words
        "$GOBIN/kubebuilder" $arguments < /dev/null
    done
    python3 - "$page" "$project" << 'END'
import os, re, sys
page, project = sys.argv[1:]
files = re.findall(r"File `([^`]+)`:\n\n```\w+\n(.*?)^```$", open(page).read(), re.M | re.S)
assert len(files) == 3, f"the page has {len(files)} files"
for path, text in files:
    path = os.path.join(project, path)
    assert os.path.exists(path), f"the scaffold has no {path}"
    open(path, "w").write(text)
END
    test -z "$(gofmt -l api internal)" || fail "gofmt: $(gofmt -l api internal)"
    make manifests generate vet
    go test -c -o "$project/page.test" ./internal/controller
} >&2
ours="$(ours)"
real="$(real)"

# The scaffold's own way, with nothing but our two programs where setup-envtest looks.
version="$(go list -m -f '{{.Version}}' k8s.io/api)"
rm -rf bin/k8s
installed="1.${version#v0.}-$(go env GOOS)-$(go env GOARCH)"
mkdir -p "bin/k8s/$installed"
cp -P "$ours"/* "bin/k8s/$installed/"
grep -q "bin/k8s/1.${version#v0.}-" "$page" || fail "docs/go-operator.md names another version than $version"
env -u KUBEBUILDER_ASSETS make test > make-test.log 2>&1 || { cat make-test.log; fail "make test"; }
grep -q '^ok .*internal/controller' make-test.log || { cat make-test.log; fail "make test ran no test of the controller"; }
[[ "$(ls bin/k8s)" == "$installed" ]] || fail "make test installed another version: $(ls bin/k8s)"
# As from an IDE.
env -u KUBEBUILDER_ASSETS go test -count=1 ./internal/controller >&2 || fail "go test without a variable"
rm -rf bin/k8s

for ((round = 1; round <= rounds; round++)); do
    for server in real ours; do
        begin=$(milliseconds)
        (cd internal/controller && KUBEBUILDER_ASSETS="${!server}" "$project/page.test" -test.v -ginkgo.no-color \
            "-ginkgo.json-report=$project/$server-$round.json") > "$server-$round.log" 2>&1 ||
            { cat "$server-$round.log"; fail "the tests on $server"; }
        echo "$(($(milliseconds) - begin))" > "$server-$round.ms"
    done
done
python3 - "$project" "$rounds" << 'END'
import json, statistics, sys
project, rounds = sys.argv[1], int(sys.argv[2])
print(f"median of {rounds}, milliseconds:")
for server in ("real", "ours"):
    times = {"BeforeSuite": [], "AfterSuite": [], "all": []}
    for round in range(1, rounds + 1):
        specs = [spec for suite in json.load(open(f"{project}/{server}-{round}.json")) for spec in suite["SpecReports"]]
        passed = [spec for spec in specs if spec["LeafNodeType"] == "It" and spec["State"] == "passed"]
        assert len(passed) == 3, f"three specs pass on {server}, not {len(passed)}"
        for spec in specs:
            if spec["LeafNodeType"] in times:
                times[spec["LeafNodeType"]].append(spec["RunTime"] / 1e6)
        times["all"].append(int(open(f"{project}/{server}-{round}.ms").read()))
    before, after, whole = (f"{statistics.median(of):.0f}" for of in times.values())
    print(f"{server}: servers and definition ready {before}, stop {after}, whole test binary {whole}")
END
