#!/usr/bin/env bash
# Makes docs/pictures/debug.png: the page /debug of the reports in fixed/debug.json, photographed by Chromium. It needs
# Chromium, Node, and optionally pngquant and optipng, which make the file smaller.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo build --quiet --locked -p ipblock-operator -p pictures
built=${CARGO_TARGET_DIR:-target}/debug
"$built/pictures" debug-page >"$folder/debug.html"
node tools/pictures/browser.mjs "file://$folder/debug.html" "$folder/debug.png"
if command -v pngquant >/dev/null; then pngquant --force --quality 70-95 --speed 1 --output "$folder/debug.png" "$folder/debug.png"; fi
if command -v optipng >/dev/null; then optipng -quiet -strip all -o5 "$folder/debug.png"; fi
cp "$folder/debug.png" docs/pictures/debug.png
"$built/pictures" debug
