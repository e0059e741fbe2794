#!/usr/bin/env bash
# Makes the archives of a release: the static programs with their completions and manual pages, the Helm chart, and SHA256SUMS. It
# checks that the programs are static, and runs them from the archives.
#
#   tools/release/build.sh [FOLDER]   FOLDER: where the archives go (target/archives)
#
# TARGET is the target to build for (x86_64-unknown-linux-gnu). The programs of another target than this machine's are not
# run. The same sources, toolchain and path give the same archives: files are sorted, and have the time of the commit
# (SOURCE_DATE_EPOCH) and no owner.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/archives}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${TARGET:-x86_64-unknown-linux-gnu}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# Each with the folder of its README.
programs=(reeve-apiserver:apiserver ipblock-operator:. kubectl-reeve:kubectl-reeve kubectl-ipb:kubectl-ipb ipblock-agent:agent)

wrong() { echo "$1" >&2; exit 1; }

# One build of all, so that they share their dependencies, with the flags and the folder of the operator's image.
build() {
  cargo build --profile dist --locked --no-default-features --features ipblock-operator/jemalloc,reeve-apiserver/program "$@" \
    --config 'build.rustflags=["-C","target-feature=+crt-static"]' --target-dir target/image
}
packages=("${programs[@]%%:*}")
if [ "$target" = "$host" ]; then
  build --target "$target" "${packages[@]/#/-p}" -pmanual
else
  build --target "$target" "${packages[@]/#/-p}"
  build --target "$host" -pmanual
fi
built=target/image/$target/dist
there=$(mktemp -d)
started=()
# shellcheck disable=SC2317 # The trap calls it.
end() {
  kill "${started[@]}" 2>/dev/null || true
  wait
  rm -rf "$there"
}
trap end EXIT
"target/image/$host/dist/manual" "$there/manual"

# archive FOLDER: prints the tar file of FOLDER, compressed.
archive() {
  tar --create --directory "$(dirname "$1")" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX --format=ustar "$(basename "$1")" | gzip --no-name --best
}

mkdir -p "$out"
rm -f "$out"/*.tar.gz "$out"/*.tgz "$out/SHA256SUMS"
for program in "${programs[@]}"; do
  name=${program%%:*}
  binary=$built/$name
  # A static program names no interpreter and needs no library.
  headers=$(readelf --program-headers --dynamic --wide "$binary")
  ! grep -qE 'INTERP|\(NEEDED\)' <<<"$headers" || wrong "$binary is not static"
  ! readelf --sections --wide "$binary" | grep -qF .symtab || wrong "$binary is not stripped"
  folder=$there/$name-$version-$target
  mkdir "$folder"
  install -m 755 "$binary" "$folder/"
  cp LICENSE "${program#*:}/README.md" "$folder/"
  cp -r "$there/manual/$name/." "$folder/"
  archive "$folder" >"$out/$name-$version-$target.tar.gz"
  archive "$folder" | cmp - "$out/$name-$version-$target.tar.gz" || wrong "the archive of $name differs from itself"
done
# The chart, as `helm package` makes it but for the times in it: that one differs from run to run.
chart=charts/ipblock-operator
[ "$(sed -n 's/^version: //p' $chart/Chart.yaml)" = "$version" ] || wrong "Chart.yaml has another version than Cargo.toml"
cp -r $chart "$there/"
rm "$there/ipblock-operator/.helmignore"
archive "$there/ipblock-operator" >"$out/ipblock-operator-$version.tgz"
(cd "$out" && sha256sum -- *.tar.gz *.tgz >SHA256SUMS)

if [ "$target" = "$host" ]; then
  rm -rf "$there"/*
  (cd "$out" && sha256sum --check --quiet SHA256SUMS)
  for name in "${packages[@]}"; do
    tar xf "$out/$name-$version-$target.tar.gz" -C "$there"
    folder=$there/$name-$version-$target
    PATH=$folder:$PATH
    [ "$("$folder/$name" --version)" = "$name $version" ] || wrong "$name does not report the version $version"
    for file in LICENSE README.md "completions/$name.bash" "completions/_$name" "completions/$name.fish" "man/$name.1"; do
      [ -s "$folder/$file" ] || wrong "the archive of $name has no $file"
    done
  done
  if command -v go >/dev/null; then
    eval "$(tools/clients/build.sh helm)"
    "$REEVE_HELM" lint --strict --quiet "$out/ipblock-operator-$version.tgz"
    "$REEVE_HELM" show chart "$out/ipblock-operator-$version.tgz" | grep -qx "version: $version" || wrong "Helm does not read the chart"
    "$REEVE_HELM" template x "$out/ipblock-operator-$version.tgz" | grep -q 'name: ipblocks.ops.yiiong.top' || wrong "the chart has no CRD"
  else
    echo "the chart with Helm: Go is not installed" | tee -a "${REEVE_NOT_RUN:-/dev/null}"
  fi
  reeve-apiserver --listen 127.0.0.1:0 --kubeconfig "$there/kubeconfig" >"$there/ready" &
  started+=($!)
  for _ in {1..100}; do [ -s "$there/ready" ] && break || sleep 0.1; done
  url=$(sed -n 's/^ready //p' "$there/ready")
  curl --fail --silent --show-error "$url/version" >"$there/version"
  grep -q gitVersion "$there/version" || wrong "reeve-apiserver does not answer"
  if command -v kubectl >/dev/null; then
    export KUBECONFIG=$there/kubeconfig
    ipblock-operator crd | kubectl apply -f -
    kubectl wait --for=condition=Established --timeout=30s crd/ipblocks.ops.yiiong.top
    # kubectl finds the plugins and their completions.
    kubectl reeve --version
    kubectl ipb list
    completed=$(kubectl __complete ipb unb 2>/dev/null)
    grep -qx unban <<<"$completed" || wrong "kubectl completes no command of kubectl-ipb: $completed"
    completed=$(kubectl __complete reeve que 2>/dev/null)
    grep -qx queues <<<"$completed" || wrong "kubectl completes no command of the plugin: $completed"
  else
    ipblock-operator crd >/dev/null
    echo "the programs with kubectl: kubectl is not installed" | tee -a "${REEVE_NOT_RUN:-/dev/null}"
  fi
fi
for name in "${packages[@]}"; do
  echo "$name: $(stat -c %s "$built/$name") bytes, $(stat -c %s "$out/$name-$version-$target.tar.gz") in its archive"
done
echo "archives and SHA256SUMS are in $out"
