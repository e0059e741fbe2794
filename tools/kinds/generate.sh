#!/usr/bin/env bash
# Writes what the API server knows of the built-in kinds, from the Kubernetes modules at the versions in go.mod beside this
# script:
#
#   apiserver/src/kinds/kinds.txt   the resources, and the fields of their types
#
#   tools/kinds/generate.sh           writes it
#   tools/kinds/generate.sh --check   fails with a diff if it is not current
#
# Needs Go (the version in go.mod or newer) and the module proxy. The first run compiles the definitions of OpenAPI, which
# takes a minute or two.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
file="$here/../../apiserver/src/kinds/kinds.txt"
check=false
case "${1:-}" in
    "") ;;
    --check) check=true ;;
    *)
        echo "usage: generate.sh [--check]" >&2
        exit 2
        ;;
esac

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$here"
export GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false"
CGO_ENABLED=0 go build -trimpath -o "$work/kinds" .
"$work/kinds" "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" > "$work/kinds.txt"

if ! $check; then
    cp "$work/kinds.txt" "$file"
elif ! diff -u "$file" "$work/kinds.txt" > "$work/diff"; then
    cut -c 1-200 "$work/diff" | head -n 40 >&2
    echo "generate.sh: $file does not match the pinned modules; run tools/kinds/generate.sh" >&2
    exit 1
fi
