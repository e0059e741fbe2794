#!/usr/bin/env bash
# Unpacks Debian's packages of Prometheus, Alertmanager and CrowdSec once, and prints the line that puts their programs into
# the PATH, where the tests of senders look for them:
#
#     eval "$(tests/e2e/senders.sh)" && cargo test --test e2e senders
#
# Only that line goes to stdout. The packages are not installed: nothing of them is started. Programs that are in the PATH already
# are used as they are. Debian's Alertmanager reads its templates from /usr/share, so root gets them copied there.
#
#   REEVE_INTEROP_DIR   the folder to unpack into (default: ${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop)
set -euo pipefail

output="${REEVE_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/reeve/interop}/senders"
missing=()
for package in prometheus prometheus-alertmanager crowdsec; do
  command -v "$package" >/dev/null || [ -x "$output/$package/usr/bin/$package" ] || missing+=("$package")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null || {
    echo "senders.sh: apt-get is needed to fetch ${missing[*]}" >&2
    exit 1
  }
  apt-get update >&2
  for package in "${missing[@]}"; do
    rm -rf "$output/$package.new" "${output:?}/$package"
    mkdir -p "$output/$package.new"
    (cd "$output/$package.new" && apt-get -o APT::Sandbox::User=root download "$package" && dpkg -x ./*.deb .) >&2
    mv "$output/$package.new" "$output/$package"
  done
fi
templates=usr/share/prometheus/alertmanager
if [ -d "$output/prometheus-alertmanager" ] && [ ! -e "/$templates/default.tmpl" ]; then
  mkdir -p "/$templates" && cp "$output/prometheus-alertmanager/$templates"/*.tmpl "/$templates" ||
    echo "senders.sh: Alertmanager does not start without /$templates/default.tmpl; root can copy it there" >&2
fi
paths=
for package in prometheus prometheus-alertmanager crowdsec; do
  [ ! -d "$output/$package/usr/bin" ] || paths+="$output/$package/usr/bin:"
done
printf 'export PATH=%q"$PATH"\n' "$paths"
