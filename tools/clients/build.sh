#!/usr/bin/env bash
# Builds Helm and the kubectl of the newest minor versions once, from the Go modules beside this script, and prints the lines that make the tests
# use them. `helm` shares half of its packages with tools/kube-apiserver; `helm-newest` is a later version:
#
#     eval "$(tools/clients/build.sh)" && cargo test -p reeve-interop --test walk
#
# Only those lines go to stdout. Needs Go and the module proxy. It takes about 17 minutes on one core; `helm` alone takes about
# five, and three after tools/kube-apiserver/build.sh.
#
#   tools/clients/build.sh [NAME...]   the programs to build: kubectl-1.34 to kubectl-1.37, helm, helm-newest (default: all)
#
#   REEVE_CLIENTS_DIR   the folder to build into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/clients)
#   REEVE_CLIENTS_JOBS  how many packages to compile at once (default: Go's default, one for each core)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${REEVE_CLIENTS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/clients}"
mkdir -p "$output"
# Of two runs at once, one builds; the other one waits and then finds the programs.
if command -v flock > /dev/null; then
    exec 9> "$output/.lock"
    flock 9
fi

chosen=("$@")
# build VARIABLE NAME MODULE PACKAGE: builds PACKAGE at the versions of the file MODULE, if NAME is chosen.
build() {
    local variable=$1 name=$2 module=$3 package=$4 stamp program version flags=""
    ((${#chosen[@]} == 0)) || [[ " ${chosen[*]} " == *" $name "* ]] || return 0
    stamp="$(cat "$here/${module%.mod}".{mod,sum} "$here/kubectl/main.go" | cksum | cut -d' ' -f1)"
    program="$output/$name-$stamp"
    if [[ ! -x "$program" ]]; then
        if ! command -v go > /dev/null; then
            echo "build.sh: Go is needed to build $name (see $here/$module for the version)" >&2
            exit 1
        fi
        echo "build.sh: building $name" >&2
        rm -f "$output/$name"-[0-9]*
        # kubectl sends its version as its user agent, and compares it with that of the server.
        version="$(sed -n 's/^[[:space:]]*k8s\.io\/component-base \(v[^ ]*\).*/\1/p' "$here/$module" | head -n 1)"
        version="v1${version#v0}"
        for of in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
            flags+=" -X $of.gitVersion=$version -X $of.gitTreeState=archive"
        done
        # Without cgo the programs are static and no C compiler is needed.
        (cd "$here" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" go build -modfile="$module" \
            ${REEVE_CLIENTS_JOBS:+-p "$REEVE_CLIENTS_JOBS"} -trimpath -ldflags "-s -w$flags" -o "$output/.$name.new" "$package") >&2
        mv "$output/.$name.new" "$program"
    fi
    printf 'export %s=%q\n' "$variable" "$program"
}
build KUBECTL_1_34 kubectl-1.34 kubectl-1.34.mod ./kubectl
build KUBECTL_1_35 kubectl-1.35 kubectl-1.35.mod ./kubectl
build KUBECTL_1_36 kubectl-1.36 kubectl-1.36.mod ./kubectl
build KUBECTL_1_37 kubectl-1.37 go.mod ./kubectl
build REEVE_HELM helm helm.mod helm.sh/helm/v4/cmd/helm
build REEVE_HELM_NEWEST helm-newest go.mod helm.sh/helm/v4/cmd/helm
