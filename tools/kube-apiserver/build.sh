#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kube-controller-manager once, from the Go module beside this script, and prints the line that makes
# the test suites use them:
#
#     eval "$(tools/kube-apiserver/build.sh)" && cargo test
#
# With the argument kube-scheduler it builds that program, too.
# Only that line goes to stdout; progress goes to stderr. Needs Go (the version in go.mod or newer) and the module
# proxy. It takes about five minutes on two cores, and no time if the binaries of these versions exist.
#
#   REEVE_ASSETS_DIR   the folder to build into
#                      (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/kube-apiserver-<version>)
#   REEVE_ASSETS_JOBS  how many packages to compile at once (default: Go's default, one for each core)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
kubernetes="$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[^ ]*\).*/\1/p' "$here/go.mod" | head -n 1)"
etcd="$(sed -n 's/^[[:space:]]*go\.etcd\.io\/etcd\/server\/v3 \(v[^ ]*\).*/\1/p' "$here/go.mod" | head -n 1)"
if [[ -z "$kubernetes" || -z "$etcd" ]]; then
    echo "build.sh: no version of k8s.io/kubernetes or go.etcd.io/etcd/server/v3 in $here/go.mod" >&2
    exit 1
fi
assets="${REEVE_ASSETS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/kube-apiserver-$kubernetes}"
stamp="kubernetes $kubernetes, etcd $etcd, $(cksum < "$here/go.sum" | cut -d' ' -f1)"

if [[ -n "${*#kube-scheduler}" ]]; then
    echo "build.sh: the only argument is kube-scheduler" >&2
    exit 1
fi
programs=(etcd kube-apiserver kube-controller-manager "$@")

ready() {
    [[ -f "$assets/VERSION" && "$(cat "$assets/VERSION")" == "$stamp" ]] || return 1
    local program
    for program in "${programs[@]}"; do
        [[ -x "$assets/$program" ]] || return 1
    done
}

finish() {
    printf 'export KUBEBUILDER_ASSETS=%q\n' "$assets"
    exit 0
}

if ready; then finish; fi
if ! command -v go > /dev/null; then
    echo "build.sh: Go is needed to build the real kube-apiserver (see $here/go.mod for the version)" >&2
    exit 1
fi

mkdir -p "$assets"
# Of two runs at once (two test jobs on one machine), one builds; the other one waits and then finds the binaries.
if command -v flock > /dev/null; then
    exec 9> "$assets/.lock"
    flock 9
    if ready; then finish; fi
fi

commit="$(printf '%s' "$stamp" | cksum | cut -d' ' -f1)"
flags=""
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    major="${kubernetes#v}"; minor="${major#*.}"
    flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=${major%%.*} -X $package.gitMinor=${minor%%.*}"
    flags+=" -X $package.gitTreeState=archive -X $package.gitCommit=$commit"
done

cd "$here"
build() {
    # A program that is missing is added to those of the same versions.
    if [[ -f "$assets/VERSION" && -x "$assets/$1" ]]; then return; fi
    echo "build.sh: building $1" >&2
    # Without cgo the binaries are static and no C compiler is needed. The debug information that -s drops is not made, either, which
    # saves a tenth of the time. Other builds here have the same flags, so that what they have in common is compiled once.
    CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" \
        go build ${REEVE_ASSETS_JOBS:+-p "$REEVE_ASSETS_JOBS"} -trimpath -ldflags "-s -w$flags" -o "$assets/.$1.new" "$2" >&2
    mv "$assets/.$1.new" "$assets/$1"
}
[[ -f "$assets/VERSION" && "$(cat "$assets/VERSION")" == "$stamp" ]] || rm -f "$assets/VERSION" "$assets/kube-scheduler"
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
if [[ " ${programs[*]} " == *" kube-scheduler "* ]]; then
    build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
fi
printf '%s\n' "$stamp" > "$assets/VERSION"
echo "build.sh: $stamp in $assets" >&2
finish
