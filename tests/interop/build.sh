#!/usr/bin/env bash
# Builds the contender on client-go once, and prints the line that makes the fail-over campaign use it:
#
#     eval "$(tests/interop/build.sh)" && cargo test -p reeve-interop
#
# Only that line goes to stdout. Needs Go and the module proxy, as tools/kube-apiserver/build.sh does, whose versions
# and flags are these, so that little is left to compile after that.
#
#   REEVE_INTEROP_DIR   the folder to build into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${REEVE_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop}"
stamp="$(cd "$here/contender" && cat go.mod go.sum ./*.go | cksum | cut -d' ' -f1)"
program="$output/contender-$stamp"

if [[ ! -x "$program" ]]; then
    if ! command -v go > /dev/null; then
        echo "build.sh: Go is needed to build the contender (see $here/contender/go.mod for the version)" >&2
        exit 1
    fi
    mkdir -p "$output"
    # Two runs at once build once: the second waits and then finds the program.
    if command -v flock > /dev/null; then
        exec 9> "$output/.lock"
        flock 9
    fi
fi
if [[ ! -x "$program" ]]; then
    rm -f "$output"/contender-*
    (cd "$here/contender" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" \
        go build -trimpath -ldflags "-s -w" -o "$output/.contender.new" .) >&2
    mv "$output/.contender.new" "$program"
fi
printf 'export REEVE_CONTENDER=%q\n' "$program"
