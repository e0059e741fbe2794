#!/usr/bin/env bash
# The examples of client-go, unchanged from their Go module, on our API server.
#
#   tests/envtest/examples.sh [ours|real]    the server (default: ours)
#
# All with a program; fake-client is a test without a server. in-cluster-client-configuration gets its files in a mount namespace of
# its own, as a Pod has them, which needs root.
#
# Needs Go, the module proxy, kubectl, curl, openssl and Python 3.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"
find_kubectl
client_go=v0.36.4
output="$root/target/envtest-examples"
mkdir -p "$output"
(cd "$output" && go mod download "k8s.io/client-go@$client_go")
module="$(go env GOMODCACHE)/k8s.io/client-go@$client_go"
for example in create-update-delete-deployment dynamic-create-update-delete-deployment workqueue leader-election \
    out-of-cluster-client-configuration in-cluster-client-configuration; do
    [[ -x "$output/$example-$client_go" ]] || (cd "$module" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" \
        go build -trimpath -o "$output/$example-$client_go" "./examples/$example") >&2
done
assets="$("${1:-ours}")"
directory="$(mktemp -d)"
trap 'stop_all; rm -rf "$directory"' EXIT
# The Deployments are deleted in the foreground, which needs garbage collection: our own, or that of the manager.
export REEVE_CONTROLLERS=1
start_plane "$assets" "$directory"
if [[ "${1:-ours}" == real ]]; then
    run "$directory/kube-controller-manager.log" "$assets/kube-controller-manager" --kubeconfig "$KUBECONFIG" \
        --leader-elect=false --secure-port=0 --service-account-private-key-file "$directory/accounts.key"
fi
k() { "$kubectl" --cache-dir "$directory/cache" "$@"; }
gone() { [[ -z "$(k get deployments -o name)" ]]; }
has() { grep -q "$1" "$2"; }
example() {
    local name=$1
    shift
    run "$directory/$name.log" "$output/$name-$client_go" "$@"
}

for name in create-update-delete-deployment dynamic-create-update-delete-deployment; do
    # Each one waits for the key Return between its steps.
    printf '\n\n\n\n' | "$output/$name-$client_go" --kubeconfig "$KUBECONFIG" > "$directory/$name.log" 2>&1 ||
        { cat "$directory/$name.log"; fail "$name"; }
    for text in 'Created deployment "demo-deployment"' 'Updated deployment' 'demo-deployment (1 replicas)' 'Deleted deployment'; do
        has "$text" "$directory/$name.log" || fail "$name does not print: $text"
    done
    within 20 "the Deployment of $name goes" gone
    echo "ok: $name"
done

example workqueue --kubeconfig "$KUBECONFIG"
k run watched --image=none > /dev/null
within 20 "workqueue sees a new Pod" has 'Sync/Add/Update for Pod watched' "$directory/workqueue.log"
k delete pod watched --force > /dev/null 2>&1
within 20 "workqueue sees that it is gone" has 'Pod default/watched does not exist anymore' "$directory/workqueue.log"
echo "ok: workqueue"

example out-of-cluster-client-configuration --kubeconfig "$KUBECONFIG"
within 20 "out-of-cluster-client-configuration counts the Pods" \
    has 'There are 0 pods in the cluster' "$directory/out-of-cluster-client-configuration.log"
within 20 "it misses its Pod" has 'Pod example-xxxxx in namespace default not found' \
    "$directory/out-of-cluster-client-configuration.log"
echo "ok: out-of-cluster-client-configuration"

k create clusterrolebinding viewer --clusterrole=view --serviceaccount=default:default > /dev/null
within 20 "the account of the namespace" k get serviceaccount default
mkdir "$directory/account"
k create token default > "$directory/account/token"
cp "$directory/certificates/apiserver.crt" "$directory/account/ca.crt"
echo -n default > "$directory/account/namespace"
run "$directory/in-cluster.log" env KUBERNETES_SERVICE_HOST=127.0.0.1 "KUBERNETES_SERVICE_PORT=${url##*:}" \
    unshare --mount bash -c 'mount -t tmpfs tmpfs "$(readlink -f /var/run)" && mkdir -p /var/run/secrets/kubernetes.io/serviceaccount &&
        cp "$1"/* /var/run/secrets/kubernetes.io/serviceaccount && exec "$2"' \
    in-cluster "$directory/account" "$output/in-cluster-client-configuration-$client_go"
within 20 "in-cluster-client-configuration counts the Pods (see $directory/in-cluster.log)" has 'There are 0 pods in the cluster' "$directory/in-cluster.log"
within 20 "it misses its Pod" has 'Pod example-xxxxx not found in default namespace' "$directory/in-cluster.log"
echo "ok: in-cluster-client-configuration"

lead() { example leader-election --kubeconfig "$KUBECONFIG" --lease-lock-name example --lease-lock-namespace default --id "$1"; }
holder() { [[ "$(k get lease example -o 'jsonpath={.spec.holderIdentity}')" == "$1" ]]; }
lead one
first=${started[-1]}
within 20 "one leads" holder one
mv "$directory/leader-election.log" "$directory/one.log"
lead two
within 20 "two waits" has 'attempting to acquire leader lease\|Attempting to acquire leader lease' "$directory/leader-election.log"
kill "$first"
within 20 "two leads after one has stopped" holder two
echo "ok: leader-election"
