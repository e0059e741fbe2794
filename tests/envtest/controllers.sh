#!/usr/bin/env bash
# The controllers of a real control plane on our API server: kube-controller-manager, kube-scheduler, and kwok for the nodes.
# Each step is what a cluster does by itself, and has a time limit.
#
#   tests/envtest/controllers.sh [ours|real]    the server (default: ours)
#
# Needs kubectl, curl, openssl and Python 3, and Go for the first build of the programs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"
find_kubectl
eval "$("$root/tools/kwok/build.sh")"
programs="$(real kube-scheduler)"
assets="$("${1:-ours}")"
directory="$(mktemp -d)"
finish() {
    local code=$?
    stop_all
    if ((code == 0)); then rm -rf "$directory"; else echo "logs: $directory" >&2; fi
}
trap finish EXIT
begin=$(milliseconds)
start_plane "$assets" "$directory"
echo "ready after $(($(milliseconds) - begin)) ms"

# kubectl keeps what it discovered, by the address of the server.
k() { "$kubectl" --cache-dir "$directory/cache" "$@"; }
# step NAME SECONDS COMMAND...: waits until COMMAND succeeds.
step() {
    local name=$1 seconds=$2 since
    since=$(milliseconds)
    shift 2
    within "$seconds" "$name" "$@"
    echo "ok: $name ($(($(milliseconds) - since)) ms)"
}
# is EXPECTED ARGUMENT...: whether kubectl with these arguments prints EXPECTED.
is() {
    local expected=$1
    shift
    [[ "$(k "$@" 2> /dev/null)" == "$expected" ]]
}
gone() { ! k get "$@"; }
count() { k get "$@" --no-headers 2> /dev/null | wc -l; }
counts() { (($(count "${@:2}") == $1)); }

run "$directory/kube-controller-manager.log" "$programs/kube-controller-manager" --kubeconfig "$KUBECONFIG" \
    --authentication-kubeconfig "$KUBECONFIG" --authorization-kubeconfig "$KUBECONFIG" --leader-elect=true --secure-port=0 \
    --service-account-private-key-file "$directory/accounts.key" --root-ca-file "$directory/certificates/apiserver.crt" \
    --use-service-account-credentials=true --kube-api-qps=1000 --kube-api-burst=2000
run "$directory/kube-scheduler.log" "$programs/kube-scheduler" --kubeconfig "$KUBECONFIG" \
    --authentication-kubeconfig "$KUBECONFIG" --authorization-kubeconfig "$KUBECONFIG" --leader-elect=true --secure-port=0
run "$directory/kwok.log" "$REEVE_KWOK" --kubeconfig "$KUBECONFIG" --manage-all-nodes=true --config "$REEVE_KWOK_STAGES"

k apply -f - > /dev/null << 'END'
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
status:
  allocatable: {cpu: "32", memory: 256Gi, pods: "110"}
  capacity: {cpu: "32", memory: 256Gi, pods: "110"}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b}}
status:
  allocatable: {cpu: "32", memory: 256Gi, pods: "110"}
  capacity: {cpu: "32", memory: 256Gi, pods: "110"}
END
step "a namespace gets its ServiceAccount and the certificates of the server" 60 \
    is "default kube-root-ca.crt" get serviceaccount/default configmap/kube-root-ca.crt -o "jsonpath={.items[0].metadata.name} {.items[1].metadata.name}"
step "kwok makes the nodes ready" 60 \
    is "True True" get nodes -o 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
step "the manager and the scheduler hold their leases" 30 counts 2 -n kube-system leases

k create deployment web --image=web --replicas=5 > /dev/null
k expose deployment web --port=80 > /dev/null
step "a Deployment becomes five Pods that the scheduler binds and kwok runs" 60 \
    is "5/5" get deployment web -o 'jsonpath={.status.readyReplicas}/{.status.replicas}'
pods_on_both() { [[ "$(k get pods -l app=web -o 'jsonpath={.items[*].spec.nodeName}' | tr ' ' '\n' | sort -u | xargs)" == "node-a node-b" ]]; }
step "they are on both nodes" 10 pods_on_both
addresses() { [[ "$(k get endpointslices -l kubernetes.io/service-name=web -o 'jsonpath={.items[0].endpoints[*].addresses[0]}' | wc -w)" == 5 ]]; }
step "its Service has five endpoints" 30 addresses
k set image deployment/web web=web:2 > /dev/null
step "a rollout replaces its ReplicaSet" 60 k rollout status deployment/web --timeout=60s
step "the old ReplicaSet is empty" 30 counts 5 pods -l app=web
k rollout undo deployment/web > /dev/null
step "a rollout is undone" 60 is web get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'
k scale deployment/web --replicas=2 > /dev/null
step "it is scaled down" 60 counts 2 pods -l app=web

k create job sum --image=sum > /dev/null
step "a Job completes" 60 k wait --for=condition=complete job/sum --timeout=1s
k create cronjob tick --image=tick --schedule='* * * * *' > /dev/null
k apply -f - > /dev/null << 'END'
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: v1
kind: Secret
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {minAvailable: 3, selector: {matchLabels: {app: db}}}
END
step "a StatefulSet has its Pods in order" 60 is "3" get statefulset db -o 'jsonpath={.status.readyReplicas}'
step "a DaemonSet has a Pod on each node" 60 is "2" get daemonset agent -o 'jsonpath={.status.numberReady}'
step "a disruption budget counts its Pods" 30 is "3" get poddisruptionbudget db -o 'jsonpath={.status.currentHealthy}'
has_token() { [[ -n "$(k get secret robot -o 'jsonpath={.data.token}')" ]]; }
step "a Secret gets the token of its ServiceAccount" 30 has_token
token="$(k get secret robot -o 'jsonpath={.data.token}' | base64 -d)"
user() { curl -fs --cacert "$directory/certificates/apiserver.crt" -H "Authorization: Bearer $1" -H 'Content-Type: application/json' \
    -d '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' "$url/apis/authentication.k8s.io/v1/selfsubjectreviews"; }
[[ "$(user "$token")" == *system:serviceaccount:default:default* ]] || fail "the token of the manager is not one of its user"
[[ "$(user "$(k create token default)")" == *system:serviceaccount:default:default* ]] || fail "the token of the server is not one of its user"
echo "ok: both tokens are of the ServiceAccount"

k create namespace shop > /dev/null
k -n shop create deployment web --image=web --replicas=2 > /dev/null
step "a second namespace runs Pods" 60 is "2" -n shop get deployment web -o 'jsonpath={.status.readyReplicas}'
k delete namespace shop --wait=false > /dev/null
step "a namespace goes with what it has" 60 gone namespace shop
k delete deployment web --cascade=background > /dev/null
step "what a Deployment owned is collected" 60 counts 0 pods,replicasets -l app=web
k delete job sum --cascade=orphan > /dev/null
owners() { [[ -z "$(k get pods -l job-name=sum -o 'jsonpath={.items[*].metadata.ownerReferences}')" ]]; }
step "an orphan stays, without its owner" 30 owners
k delete node node-b > /dev/null
step "the Pods of a node that is gone go too" 90 counts 1 pods -l app=agent
step "a CronJob starts a Job" 90 counts 1 jobs
echo "all steps in $((($(milliseconds) - begin) / 1000)) s on $assets"
