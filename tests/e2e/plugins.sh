#!/usr/bin/env bash
# Copies the definitions that the engines `cilium` and `calico` write objects of out of the Go modules of Cilium and Calico, once, and
# prints the line that makes the tests use them:
#
#     eval "$(tests/e2e/plugins.sh)" && cargo test --test e2e sets
#
# Only that line goes to stdout. Needs Go and the module proxy, and takes seconds. With the argument `judge` it also builds the program
# in plugins/, which takes a minute, and prints the line that makes the tests use it: it checks each object by the code of the plugin.
#
#   REEVE_INTEROP_DIR   the folder to write into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/plugins" && pwd)"
stamp="$(cd "$here" && cat go.mod go.sum ./*.go | cksum | cut -d' ' -f1)"
output="${REEVE_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop}/plugins-$stamp"
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false"

# Two runs at once write once: the second waits.
mkdir -p "$(dirname "$output")"
if command -v flock > /dev/null; then
    exec 9> "${output%/*}/.plugins.lock"
    flock 9
fi
if [[ ! -d "$output" ]]; then
    if ! command -v go > /dev/null; then
        echo "plugins.sh: Go is needed to fetch the definitions (see $here/go.mod for the version)" >&2
        exit 1
    fi
    # folder MODULE: where its files are.
    folder() { (cd "$here" && go mod download "$1" >&2 && go list -m -f '{{.Dir}}' "$1"); }
    cilium="$(folder github.com/cilium/cilium)/pkg/k8s/apis/cilium.io/client/crds/v2"
    calico="$(folder github.com/projectcalico/calico)/libcalico-go/config/crd"
    rm -rf "$output.new"
    mkdir -p "$output.new"
    for plural in ciliumcidrgroups ciliumclusterwidenetworkpolicies; do
        cp "$cilium/$plural.yaml" "$output.new/$plural.yaml"
    done
    for plural in globalnetworksets globalnetworkpolicies; do
        cp "$calico/crd.projectcalico.org_$plural.yaml" "$output.new/$plural.yaml"
    done
    # Those of the module cache are read-only.
    chmod -R u+w "$output.new"
    mv "$output.new" "$output"
fi
if [[ "${1:-}" == judge && ! -x "$output/judge" ]]; then
    (cd "$here" && go build -trimpath -ldflags "-s -w" -o "$output/judge.new" .) >&2
    mv "$output/judge.new" "$output/judge"
fi
printf 'export REEVE_PLUGINS=%q\n' "$output"
[[ "${1:-}" != judge ]] || printf 'export REEVE_PLUGINS_JUDGE=%q\n' "$output/judge"
