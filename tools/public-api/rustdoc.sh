#!/bin/sh
# rustdoc of the pinned toolchain, with its JSON output, which is not stable.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
