#!/usr/bin/env bash
# Unpacks Debian's package of CrowdSec's firewall bouncer once, and prints the line that makes the tests use it:
#
#     eval "$(tests/e2e/bouncer.sh)" && cargo test --test e2e bouncer
#
# Only that line goes to stdout. The package is not installed: nothing of it is started. Where it cannot be had, or where
# network namespaces and nftables are not allowed, the variable is `unavailable` and stderr has the reason: the tests are
# skipped, and they fail where assets are required.
#
#   REEVE_INTEROP_DIR   the folder to unpack into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop)
set -uo pipefail

package=crowdsec-firewall-bouncer
output="${REEVE_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop}/bouncer"
program="$output/usr/bin/$package"

unavailable() {
  echo "the tests with CrowdSec's firewall bouncer: $1" >&2
  echo "export REEVE_BOUNCER=unavailable"
  exit 0
}

command -v apt-get >/dev/null || unavailable "Debian's package $package cannot be fetched without apt-get"
missing=()
for pair in nft:nftables ip:iproute2 unshare:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
if [ ! -x "$program" ] || ((${#missing[@]})); then
  rm -rf "$output.new"
  mkdir -p "$output.new"
  {
    apt-get update &&
      { ((!${#missing[@]})) || apt-get install --yes --no-install-recommends "${missing[@]}"; } &&
      (cd "$output.new" && apt-get -o APT::Sandbox::User=root download "$package" && dpkg -x ./*.deb .)
  } >&2 || unavailable "Debian's package $package cannot be fetched"
  rm -rf "$output"
  mv "$output.new" "$output"
fi
unshare --net sh -c 'ip link set lo up && nft list ruleset' >&2 ||
  unavailable "network namespaces with nftables are not allowed here"
printf 'export REEVE_BOUNCER=%q\n' "$program"
