#!/usr/bin/env bash
# Builds kwok once, from the Go module beside this script, and prints the line that makes tests use it, with stages for
# nodes and Pods:
#
#     eval "$(tools/kwok/build.sh)" && tests/envtest/controllers.sh
#
# Only that line goes to stdout. Needs Go and the module proxy.
#
#   REEVE_KWOK_DIR   the folder to build into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/kwok)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${REEVE_KWOK_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/kwok}"
program="$output/kwok-$(cat "$here/go.mod" "$here/go.sum" | cksum | cut -d' ' -f1)"
if [[ ! -x "$program" ]]; then
    if ! command -v go > /dev/null; then
        echo "build.sh: Go is needed to build kwok (see $here/go.mod for the version)" >&2
        exit 1
    fi
    mkdir -p "$output"
    echo "build.sh: building kwok" >&2
    (cd "$here" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" go build -trimpath -ldflags "-s -w" \
        -o "$program.new" sigs.k8s.io/kwok/cmd/kwok) >&2
    mv "$program.new" "$program"
fi
# Stages that make nodes and Pods ready, and finish Jobs, from the same module.
stages="$program.yaml"
if [[ ! -f "$stages" ]]; then
    module="$(cd "$here" && GOFLAGS=-mod=readonly go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)"
    for stage in "$module"/kustomize/stage/{node/fast,node/heartbeat-with-lease,pod/fast}/[!k]*.yaml; do
        [[ "$stage" == *input* || "$stage" == *output* ]] || { echo "---"; cat "$stage"; }
    done > "$stages.new"
    mv "$stages.new" "$stages"
fi
printf 'export REEVE_KWOK=%q REEVE_KWOK_STAGES=%q\n' "$program" "$stages"
