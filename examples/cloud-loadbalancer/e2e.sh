#!/usr/bin/env bash
# The life of a Service of type LoadBalancer, from `kubectl create deployment` to the end of its load balancer, with kubectl and
# curl. The cloud (slbd), HAProxy, nodes and Pods (nodesim) and the controller (ccm) are processes on loopback addresses.
# Exits with 0 if all was as it should be. With STABLE=1 it prints what e2e.txt has.
#
#     cargo build -p reeve-apiserver -p cloud-loadbalancer -p slbd --bins
#     examples/cloud-loadbalancer/e2e.sh
#
# Without KUBECONFIG it starts reeve-apiserver. With it, it uses that cluster, which must be empty: the script makes nodes, and
# is scheduler, kubelet and kube-proxy.
#
#   CONTROLLERS=1  the cluster has a kube-controller-manager, which makes Pods and EndpointSlices; else the script does
#   STABLE=1       print placeholders for addresses, ages, ids and ports that are chosen
#   PROGRAMS       the folder of the programs (target/debug)
#   NUMBER         a number from 0 to 255, for addresses of this run: 127.66.NUMBER.x, 127.77.NUMBER.x, 127.88.NUMBER.x (0)
#   KUBECTL, HAPROXY   their paths (kubectl, /usr/sbin/haproxy)
#   PATIENCE       the time limit of each wait in seconds (30)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
programs=${PROGRAMS:-$here/../../target/debug}
kubectl=${KUBECTL:-kubectl}
patience=${PATIENCE:-30}
number=${NUMBER:-0}
service=nginx-example-svc
work=$(mktemp -d)
children=()

cleanup() {
  local status=$? child
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
  if ((status != 0)); then
    tail -n 30 "$work"/*.log >&2 || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# start NAME COMMAND...: a process until the end, with its output in NAME.log.
start() {
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 </dev/null &
  children+=($!)
}
# until_true WHAT COMMAND...: waits until COMMAND succeeds.
until_true() {
  local what=$1 end=$((SECONDS + patience))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "not within ${patience}s: $what"
    sleep 0.1
  done
}
say() { echo "# $*"; }
k() { "$kubectl" "$@"; }
slbctl() { "$programs/slbctl" --admin "http://$admin" "$@"; }
# shown COMMAND...: prints the command and its output.
shown() { shown_as "$*" "$@"; }
# shown_as TEXT COMMAND...: prints TEXT for the command.
shown_as() {
  echo "\$ $1"
  shift
  "${@/#kubectl/k}" >"$work/shown" 2>&1 || fail "$* fails: $(cat "$work/shown")"
  if [ -z "${STABLE:-}" ]; then
    cat "$work/shown"
    return
  fi
  # The order is from the special to the general.
  sed -E -e "s/127\.(66|77|88)\.$number\./127.\1.0./g" \
    -e 's/\b10\.[0-9]+\.[0-9]+\.[0-9]+\b/CLUSTER-IP/g' \
    -e 's/:3[0-9]{4}\b/:NODE-PORT/g' \
    -e 's/lb-[0-9a-z]{6,}/lb-ID/g' \
    -e 's/"lb.reeve.dev\/hash":"[0-9a-f]+"/"lb.reeve.dev\/hash":"HASH"/' \
    -e 's/^[0-9]+ +([A-Z])/N \1/; s/request [-0-9A-Za-z]+/request ID/; s/ [0-9]+s$/ AGE/; s/ +/ /g' "$work/shown"
}
field() { k get "$1" "$2" -o "jsonpath={$3}"; }
# events REASON...: lines of kubectl describe, without the ages.
events() {
  local reasons
  reasons=$(IFS='|' && echo "$*")
  k describe service "$service" | sed -n '/^Events:/,$p' | sed -nE "s/^ +(Normal|Warning) +($reasons) .* cloud-loadbalancer +(.*)$/\1 \2: \3/p" | sort -u
}
shown_events() { shown_as "kubectl describe service $service | grep -E '$(IFS='|' && echo "$*")'" events "$@"; }
has_event() { [ -n "$(events "$1")" ]; }
answers() {
  local n
  for ((n = 0; n < $1; n++)); do curl -sS --max-time 5 "http://$ip/"; done
}
# counted NUMBER: the answers of that many requests, with their counts.
counted() { answers "$1" | sort | uniq -c | sed -E 's/^ +//'; }

# --- the cluster
if [ -z "${KUBECONFIG:-}" ]; then
  export KUBECONFIG=$work/kubeconfig
  start apiserver "$programs/reeve-apiserver" --authorization-mode RBAC --kubeconfig "$KUBECONFIG"
  until_true "the API server answers" "$kubectl" get namespace default
fi
# Nodes and Pods are processes; the script does what a scheduler, kubelets and kube-proxies do.
for n in 1 2 3; do
  k create -f - >/dev/null <<YAML
---
{apiVersion: v1, kind: Node, metadata: {name: node-$n}, spec: {providerID: sim://r1.i-$n}}
YAML
  k patch node "node-$n" --subresource=status --type=merge >/dev/null -p \
    '{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Sim", "message": "a process"}]}}'
  start "pod-$n" "$programs/nodesim" pod --listen "127.88.$number.$n:80" --name "node-$n"
done

# --- the cloud, and the controller with the rights of its manifest
start slbd "$programs/slbd" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --key id=secret --state "$work/slbd.db" \
  --addresses "127.66.$number.0/24" --haproxy "${HAPROXY:-/usr/sbin/haproxy}" --folder "$work/haproxy" \
  --instance "i-1=127.77.$number.1" --instance "i-2=127.77.$number.2" --instance "i-3=127.77.$number.3"
until_true "slbd listens" grep -q '^api ' "$work/slbd.log"
read -r _ api _ admin < <(grep '^api ' "$work/slbd.log")
echo id=secret >"$work/key"
k apply -f "$here/manifests/rbac.yaml" >/dev/null
token=$(k create token cloud-loadbalancer --namespace kube-system)
(umask 077 && k config view --raw --minify --flatten >"$work/ccm.kubeconfig")
k --kubeconfig "$work/ccm.kubeconfig" config unset users >/dev/null
k --kubeconfig "$work/ccm.kubeconfig" config set-credentials ccm --token="$token" >/dev/null
k --kubeconfig "$work/ccm.kubeconfig" config set-context --current --user=ccm >/dev/null
start ccm "$programs/ccm" run --cluster-id e2e --provider slb --slb-endpoint "http://$api" --slb-region cn-loopback \
  --slb-key-file "$work/key" --slb-visible-within 1 --kubeconfig "$work/ccm.kubeconfig" \
  --metrics-bind-address 0 --health-probe-bind-address 0

# run_pod POD N: the Pod runs on node N. The address of its process is a loopback address, which no EndpointSlice may have.
run_pod() {
  local ready='{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}'
  k patch pod "$1" --subresource=status --type=merge >/dev/null -p "{\"status\": {\"phase\": \"Running\",
    \"podIP\": \"10.244.$2.2\", \"podIPs\": [{\"ip\": \"10.244.$2.2\"}], \"conditions\": [$ready]}}"
}
pods() { k get pods --selector app=nginx-example --output 'jsonpath={.items[*].metadata.name}'; }
three_pods() { [ "$(pods | wc -w)" -eq 3 ]; }
# What the controllers of a Deployment make, where they do not run.
make_pods() {
  local n
  for n in 1 2 3; do
    k create -f - >/dev/null <<YAML
---
{apiVersion: v1, kind: Pod, metadata: {name: nginx-example-$n, labels: {app: nginx-example}},
 spec: {nodeName: node-$n, serviceAccountName: default, containers: [{name: nginx, image: nginx}]}}
YAML
    run_pod "nginx-example-$n" "$n"
  done
}
# What the controller of EndpointSlices makes, where it does not run.
make_slice() {
  local n endpoints=
  for n in 1 2 3; do
    endpoints+="{addresses: [10.244.$n.2], nodeName: node-$n, conditions: {ready: true}}, "
  done
  k create -f - >/dev/null <<YAML
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
 metadata: {name: $service-1, labels: {kubernetes.io/service-name: $service}},
 ports: [{port: 80, protocol: TCP}], endpoints: [$endpoints]}
YAML
}
bind_pods() {
  local pod n=0
  for pod in $(pods); do
    n=$((n + 1))
    k create --raw "/api/v1/namespaces/default/pods/$pod/binding" -f - >/dev/null <<JSON
{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "$pod"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node-$n"}}
JSON
    run_pod "$pod" "$n"
  done
}

say "A Deployment, and a Service of type LoadBalancer for it"
shown kubectl create deployment nginx-example --image=nginx --replicas=3
if [ -n "${CONTROLLERS:-}" ]; then
  until_true "there are three Pods" three_pods
  bind_pods
else
  make_pods
fi
shown kubectl expose deployment nginx-example --name="$service" --type=LoadBalancer --port=80
[ -n "${CONTROLLERS:-}" ] || make_slice
# Each node forwards to the Pod on it.
node_port=$(field service "$service" '.spec.ports[0].nodePort')
for n in 1 2 3; do
  start "node-$n" "$programs/nodesim" node --drain 1 --listen "127.77.$number.$n:$node_port" --pod "127.88.$number.$n:80"
done
published() { ip=$(field service "$service" '.status.loadBalancer.ingress[0].ip') && [ -n "$ip" ]; }
until_true "the Service has an address" published
until_true "the Service is ensured" has_event EnsuredLoadBalancer
in_turn() { [ "$(counted 9)" = $'3 node-1\n3 node-2\n3 node-3' ]; }
until_true "the nodes answer in turn" in_turn
shown kubectl get service "$service"
shown_as "curl http://\$EXTERNAL_IP/ (9 times)" counted 9
shown kubectl get service "$service" -o 'jsonpath={.metadata.finalizers}{.metadata.labels}{"\n"}'
lb=$(field service "$service" '.metadata.labels.lb\.reeve\.dev/loadbalancer-id')
shown_events EnsuringLoadBalancer EnsuredLoadBalancer

say "Three annotations: one call for each attribute, and the protection is lifted for them"
before=$(slbctl calls --last)
hash() { field service "$service" '.metadata.labels.lb\.reeve\.dev/hash'; }
applied=$(hash)
applied_again() { [ "$(hash)" != "$applied" ]; }
shown kubectl annotate service "$service" lb.reeve.dev/spec=slb.s2.small lb.reeve.dev/bandwidth=50 lb.reeve.dev/traffic-charge=paybybandwidth
until_true "the annotations are applied" applied_again
shown_as "slbctl calls --changes --after BEFORE" slbctl calls --changes --after "$before"
attributes() { slbctl lb get "$lb" | grep -E "^  \"($1)\"" | sort; }
shown_as "slbctl lb get LB | grep -E 'bandwidth|charge|spec'" attributes 'bandwidth|charge|spec'

say "A node is excluded: no request fails, and the node gets none"
# A loop of requests until the file "enough" exists.
(while [ ! -e "$work/enough" ]; do answers 1 || echo failed; done) >"$work/loop" 2>"$work/loop.log" &
loop=$!
children+=("$loop")
shown kubectl label node node-2 node.kubernetes.io/exclude-from-external-load-balancers=true
without_two() { [ "$(answers 6 | grep -c '^node-2$')" = 0 ]; }
until_true "node-2 gets no requests" without_two
touch "$work/enough"
wait "$loop"
[ "$(wc -l <"$work/loop")" -ge 6 ] || fail "the loop made $(wc -l <"$work/loop") requests"
failed=$(grep -cv '^node-[123]$' "$work/loop" || true)
[ "$failed" = 0 ] || fail "$failed requests failed while the node was excluded: $(sort "$work/loop" | uniq -c)"
in_turn() { [ "$(counted 8)" = $'4 node-1\n4 node-3' ]; }
until_true "the two nodes answer in turn" in_turn
shown_as "curl http://\$EXTERNAL_IP/ (8 times)" counted 8

say "The cloud fails twice at a new name: a warning, and later the name is there"
shown slbctl fault set SetLoadBalancerName=500x2
applied=$(hash)
shown kubectl annotate service "$service" lb.reeve.dev/name=web
until_true "the failure is reported" has_event SyncLoadBalancerFailed
shown_events SyncLoadBalancerFailed
until_true "the name is applied" applied_again
shown_as "slbctl lb get LB | grep name" attributes name
shown_events EnsuredLoadBalancer

say "With the Service the load balancer goes"
shown kubectl delete service "$service"
refused() {
  local status=0
  curl -sS --max-time 5 "http://$ip/" 2>"$work/refused" || status=$?
  # The status of a connection that is refused.
  ((status == 7))
}
until_true "connections are refused" refused
refusal() { grep -o 'curl: ([0-9]*)' "$work/refused"; }
shown_as "curl http://\$EXTERNAL_IP/" refusal
shown slbctl lb list
[ -z "$(slbctl lb list)" ] || fail "a load balancer is left"
say "ok"
