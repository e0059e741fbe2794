#!/usr/bin/env bash
# Makes docs/pictures/blocks.png: the page of the IPBlock operator with the blocks in fixed/, photographed by Chromium. It
# needs Chromium, Node, and optionally pngquant and optipng, which make the file smaller.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo build --quiet --locked --workspace --bin ipblock-operator --bin pictures
built=${CARGO_TARGET_DIR:-target}/debug
"$built/pictures" blocks-page >"$folder/blocks.html"
node tools/pictures/blocks.mjs "$folder/blocks.html" "$folder/blocks.png"
if command -v pngquant >/dev/null; then pngquant --force --quality 70-95 --speed 1 --output "$folder/blocks.png" "$folder/blocks.png"; fi
if command -v optipng >/dev/null; then optipng -quiet -strip all -o5 "$folder/blocks.png"; fi
cp "$folder/blocks.png" docs/pictures/blocks.png
"$built/pictures" blocks
