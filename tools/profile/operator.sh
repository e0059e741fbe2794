#!/usr/bin/env bash
# Writes target/image.toml, the configuration of cargo for the program of the operator's image: it is static, and compiled by
# the profile of its own work. For that the operator is compiled twice. The first program counts which code runs, while
# operator-bench gives it blocks, a gateway, lists and lifts, with the built-in API server on loopback by TLS. The compiler
# then makes the code that ran fast, and the rest small.
#
#   tools/profile/operator.sh [yes|no]   no: without a profile, and so without the first program
#
# Needs llvm-profdata of the LLVM that rustc has: from `rustup component add llvm-tools`, or from LLVM_PROFDATA.
set -euo pipefail
cd "$(dirname "$0")/../.."
configuration=target/image.toml
profile=$PWD/target/profile
target=$(rustc -vV | sed -n 's/^host: //p')

wrong() { echo "$1" >&2; exit 1; }

# configure FLAG...: writes the configuration.
configure() {
  {
    printf '[build]\nrustflags = ["-C", "target-feature=+crt-static"'
    for flag in "$@"; do printf ', "-C", "%s"' "$flag"; done
    printf ']\n'
  } >"$configuration"
}

mkdir -p target
case ${1:-yes} in
  yes) ;;
  no)
    configure
    exit
    ;;
  *) wrong "usage: tools/profile/operator.sh [yes|no]" ;;
esac
profdata=${LLVM_PROFDATA:-$(rustc --print sysroot)/lib/rustlib/$target/bin/llvm-profdata}
[ -x "$profdata" ] || wrong "$profdata is not there: \`rustup component add llvm-tools\` installs it, and LLVM_PROFDATA names another one of LLVM $(rustc -vV | sed -n 's/^LLVM version: //p')"

rm -rf "$profile/counts"
mkdir -p "$profile/counts"
configure "profile-generate=$profile/counts"
cargo build --profile dist --locked --no-default-features --features jemalloc --bin ipblock-operator --config "$configuration" --target "$target" --target-dir "$profile"
rm "$configuration"
cargo build --release --locked -p operator-bench
operator=$profile/$target/dist/ipblock-operator
export LLVM_PROFILE_FILE=$profile/counts/%p.profraw
for work in "1000+0 --at-gateway" "1000+20000"; do
  # shellcheck disable=SC2086 # The words of the work.
  target/release/operator-bench --operator "$operator" --log "$profile/operator.log" --tls --idle 1 --scale $work
done
counted=$(find "$profile/counts" -name '*.profraw' -size +0 | wc -l)
[ "$counted" = 2 ] || wrong "$counted of 2 runs of the operator wrote what they counted"
"$profdata" merge --output "$profile/operator.profdata" "$profile"/counts/*.profraw
configure "profile-use=$profile/operator.profdata"
echo "$configuration names the profile of $(stat -c %s "$profile/operator.profdata") bytes"
