#!/usr/bin/env bash
# Writes the table and the test corpus of the crate reeve-wire, from the Kubernetes types at the versions in go.mod beside
# this script:
#
#   wire/src/table.txt              the fields of every message
#   wire/tests/testdata/corpus.txt  objects of every kind, in protobuf and in JSON
#
#   tools/protobuf/generate.sh           writes both
#   tools/protobuf/generate.sh --check   fails with a diff if a file is not current
#
# Needs Go (the version in go.mod or newer) and the module proxy; takes a few seconds when the modules are downloaded.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
target="$here/../../wire"
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
CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" go build -trimpath -o "$work/protobuf" .

status=0
for pair in table:src/table.txt corpus:tests/testdata/corpus.txt; do
    file="$target/${pair#*:}"
    "$work/protobuf" "${pair%%:*}" > "$work/written"
    if ! $check; then
        cp "$work/written" "$file"
    elif ! diff -u "$file" "$work/written" > "$work/diff"; then
        cut -c 1-200 "$work/diff" | head -n 40 >&2
        echo "generate.sh: $file does not match the pinned types; run tools/protobuf/generate.sh" >&2
        status=1
    fi
done
exit "$status"
