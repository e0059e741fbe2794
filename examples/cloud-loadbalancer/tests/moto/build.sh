#!/usr/bin/env bash
# Installs moto, a server with the API of Elastic Load Balancing, once, and prints the line that makes the tests use it:
#
#     eval "$(examples/cloud-loadbalancer/tests/moto/build.sh)" && cargo test -p cloud-loadbalancer --test it moto
#
# Only that line goes to stdout. Needs Python 3 with venv, and PyPI.
#
#   REEVE_INTEROP_DIR   the folder to install into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
output="${REEVE_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop}"
environment="$output/moto-$(cksum <"$here/requirements.txt" | cut -d' ' -f1)"

if [[ ! -x "$environment/bin/python" ]]; then
    mkdir -p "$output"
    rm -rf "$output"/moto-*
    python3 -m venv "$environment.new" >&2
    "$environment.new/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
    mv "$environment.new" "$environment"
fi
printf 'export REEVE_MOTO_PYTHON=%q\n' "$environment/bin/python"
