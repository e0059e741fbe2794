# Functions for scripts that run programs against an API server with the flags of kube-apiserver: the real pair, or the two programs of
# `reeve-apiserver envtest`. To be sourced.

# A command that fails in `$(…)` fails the script.
shopt -s inherit_errexit
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
started=()

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# ours: prints the directory of our pair: of the program REEVE_APISERVER, else of one built from this checkout with the profile
# REEVE_PROFILE (default: debug).
ours() {
    local profile=${REEVE_PROFILE:-debug} program=${REEVE_APISERVER:-} flags=()
    if [[ -z "$program" ]]; then
        [[ "$profile" == debug ]] || flags=(--profile "$profile")
        (cd "$root" && cargo build --quiet --locked -p reeve-apiserver "${flags[@]}") >&2
        program="$root/target/$profile/reeve-apiserver"
    fi
    "$program" envtest "$root/target/envtest-assets" > /dev/null
    echo "$root/target/envtest-assets"
}

# real [PROGRAM]: prints the directory of the real pair, and builds PROGRAM beside it.
real() {
    local KUBEBUILDER_ASSETS
    eval "$("$root/tools/kube-apiserver/build.sh" "$@")"
    echo "$KUBEBUILDER_ASSETS"
}

# milliseconds: prints the time since the start of the machine.
milliseconds() {
    local uptime
    read -r uptime _ < /proc/uptime
    echo "${uptime/./}0"
}

# within SECONDS WHAT COMMAND...: repeats COMMAND until it succeeds.
within() {
    local seconds=$1 what=$2 begin=$SECONDS
    shift 2
    until "$@" > /dev/null 2>&1; do
        ((SECONDS - begin < seconds)) || fail "$what: not within ${seconds}s"
        sleep 0.05
    done
}

# run LOG PROGRAM...: starts a program that ends with this script.
run() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 &
    started+=($!)
}

stop_all() {
    local index
    for ((index = ${#started[@]} - 1; index >= 0; index--)); do
        kill "${started[index]}" 2> /dev/null || continue
        wait "${started[index]}" 2> /dev/null || true
    done
    started=()
}

free_ports() {
    python3 - "$1" << 'END'
import random, socket, sys
# Below the range of connections, one of which could take the port before the program listens.
free = []
while len(free) < int(sys.argv[1]):
    port = random.randrange(20000, 30000)
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            continue
    if port not in free:
        free.append(port)
print(*free)
END
}

# start_plane ASSETS DIR: starts etcd and kube-apiserver of ASSETS with their files in DIR. Sets `url`, and KUBECONFIG of an
# administrator.
start_plane() {
    local assets=$1 directory=$2 client peer port token
    mkdir -p "$directory"
    read -r client peer port <<< "$(free_ports 3)"
    url="https://127.0.0.1:$port"
    token="$(openssl rand -hex 16)"
    openssl genrsa -out "$directory/accounts.key" 2048 2> /dev/null
    openssl rsa -in "$directory/accounts.key" -pubout -out "$directory/accounts.pub" 2> /dev/null
    echo "$token,admin,admin,\"system:masters\"" > "$directory/tokens.csv"
    run "$directory/etcd.log" "$assets/etcd" --data-dir "$directory/etcd" --unsafe-no-fsync=true \
        --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$peer"
    within 30 etcd curl -fs "http://127.0.0.1:$client/health"
    run "$directory/kube-apiserver.log" "$assets/kube-apiserver" --etcd-servers "http://127.0.0.1:$client" \
        --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$directory/certificates" \
        --authorization-mode RBAC --token-auth-file "$directory/tokens.csv" \
        --service-cluster-ip-range 10.0.0.0/24 --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
        --service-account-issuer https://kubernetes.default.svc.cluster.local \
        --service-account-key-file "$directory/accounts.pub" \
        --service-account-signing-key-file "$directory/accounts.key" "${plane_flags[@]}"
    within 60 kube-apiserver curl -fks "$url/readyz"
    cat > "$directory/kubeconfig" << END
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "$url", certificate-authority: "$directory/certificates/apiserver.crt"}}]
users: [{name: test, user: {token: "$token"}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
END
    export KUBECONFIG="$directory/kubeconfig"
}
plane_flags=()

# find_kubectl: sets `kubectl`.
find_kubectl() {
    kubectl="${KUBECTL:-$(command -v kubectl || true)}"
    [[ -x "$kubectl" ]] || kubectl=/usr/lib/google-cloud-sdk/bin/kubectl
    [[ -x "$kubectl" ]] || kubectl=/usr/share/google-cloud-sdk/bin/kubectl
    [[ -x "$kubectl" ]] || fail "no kubectl in PATH; set KUBECTL to its path"
}
