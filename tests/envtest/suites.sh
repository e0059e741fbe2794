#!/usr/bin/env bash
# The suites of controller-runtime, unchanged from their Go module, on a real kube-apiserver and on ours, compared spec by spec.
#
#   tests/envtest/suites.sh [SUITE...]       both servers (default: all suites)
#   tests/envtest/suites.sh --ours SUITE...  ours alone: each spec that runs must pass, unless differences.txt lists it
#   tests/envtest/suites.sh --compile SUITE...  compiles the suites, and runs none
#
# A suite is a package below pkg/ that starts an API server, see the list below. They are compiled from the module cache, which is
# read-only. Specs of Ginkgo and plain test functions are compared. A spec that fails is tried three times, on both servers: some of
# the cache's own races fail on both now and then. More than five such specs of a suite on ours, beyond those on the real server, fail
# the run.
# Needs Go, the module proxy and Python 3.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"

controller_runtime=v0.25.2
both=yes
compile=no
case "${1:-}" in
    --ours) both=no; shift ;;
    --compile) compile=yes; shift ;;
esac
suites=("$@")
((${#suites[@]})) || suites=(client client/apiutil cluster cache builder controller controller/controllerutil handler
    internal/controller internal/recorder internal/testing/controlplane manager manager/internal/integration metrics/filters reconcile source webhook envtest)
output="$root/target/envtest-suites"
mkdir -p "$output"

(cd "$output" && go mod download "sigs.k8s.io/controller-runtime@$controller_runtime")
module="$(go env GOMODCACHE)/sigs.k8s.io/controller-runtime@$controller_runtime"
for suite in "${suites[@]}"; do
    program="$output/${suite//\//-}-$controller_runtime.test"
    [[ -x "$program" ]] && continue
    echo "compiling pkg/$suite" >&2
    (cd "$module" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" go test -c -vet=off -trimpath -o "$program.$$" "./pkg/$suite")
    # Another run may compile it at the same time.
    mv "$program.$$" "$program"
done
[[ "$compile" == no ]] || exit 0

# one SERVER ASSETS SUITE: runs a suite, and leaves its report and its log.
one() {
    local server=$1 assets=$2 suite=$3 name report begin
    name="${suite//\//-}"
    report="$output/$server-$name"
    rm -f "$report.json"
    begin=$(milliseconds)
    (cd "$module/pkg/$suite" && env -u KUBECONFIG KUBEBUILDER_ASSETS="$assets" timeout --foreground 600 \
        "$output/$name-$controller_runtime.test" -test.v -test.timeout=590s -ginkgo.no-color -ginkgo.flake-attempts=3 \
        "-ginkgo.json-report=$report.json") > "$report.log" 2>&1 || true
    echo "$(($(milliseconds) - begin))" > "$report.ms"
    [[ -s "$report.json" ]] || fail "pkg/$suite on $server made no report: see $report.log"
}

ours="$(ours)"
servers=(ours)
if [[ "$both" == yes ]]; then
    real="$(real)"
    servers=(real ours)
fi
for suite in "${suites[@]}"; do
    for server in "${servers[@]}"; do
        one "$server" "${!server}" "$suite"
    done
done
python3 "$here/compare.py" "$output" "$here/differences.txt" "$both" "${suites[@]}"
