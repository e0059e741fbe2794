#!/usr/bin/env bash
# Runs the four scenarios of the original with kubectl, on the API server that KUBECONFIG names. The program has to run
# already. Exits with 0 if all passed.
#
#     KUBECONFIG=/tmp/kubeconfig examples/service-ingress/scenarios.sh
#
#   KUBECTL     another kubectl
#   NAMESPACE   another namespace than default
#   PATIENCE    the time limit of each step in seconds (30)
set -euo pipefail

kubectl=${KUBECTL:-kubectl}
patience=${PATIENCE:-30}
name=nginx-pod-demo
k() { "$kubectl" --namespace "${NAMESPACE:-default}" "$@"; }
shown() { echo "\$ kubectl $*"; k "$@"; }
# The uid of the Ingress, or nothing.
ingress() { k get ingress "$name" --ignore-not-found --output 'jsonpath={.metadata.uid}'; }
exists() { [ -n "$(ingress)" ]; }
gone() { [ -z "$(ingress)" ]; }
is_another() { local uid; uid=$(ingress); [ -n "$uid" ] && [ "$uid" != "$1" ]; }

# until_true WHAT COMMAND...: waits until COMMAND succeeds.
until_true() {
  local what=$1 end=$((SECONDS + patience))
  shift
  until "$@"; do
    if ((SECONDS >= end)); then
      echo "FAILED: not within ${patience}s: $what" >&2
      exit 1
    fi
    sleep 0.1
  done
  echo "ok: $what"
}
clean_up() { k delete "service/$name" "pod/$name" --ignore-not-found --wait=false > /dev/null 2>&1 || true; }
trap clean_up EXIT

echo "== an annotation creates an Ingress"
shown run "$name" --image=nginx --port=80
shown expose pod "$name" --port=80
gone || { echo "FAILED: an Ingress exists without an annotation" >&2; exit 1; }
shown annotate service "$name" ingress/http=on
until_true "there is an Ingress" exists
k get ingress "$name"
path=.spec.rules[0].http.paths[0]
wanted="nginx example.com / Prefix $name 80 v1 Service"
found=$(k get ingress "$name" --output "jsonpath={.spec.ingressClassName} {.spec.rules[0].host} {$path.path} {$path.pathType} {$path.backend.service.name} {$path.backend.service.port.number} {.metadata.ownerReferences[0].apiVersion} {.metadata.ownerReferences[0].kind}")
[ "$found" = "$wanted" ] || { echo "FAILED: the Ingress is '$found', not '$wanted'" >&2; exit 1; }

echo "== without the annotation the Ingress is deleted"
shown annotate service "$name" ingress/http-
until_true "there is no Ingress" gone

echo "== a deleted Ingress is created again"
shown annotate service "$name" ingress/http=on
until_true "there is an Ingress" exists
before=$(ingress)
shown delete ingress "$name"
until_true "there is a new Ingress" is_another "$before"

echo "== with the Service the Ingress is deleted"
shown delete service "$name"
until_true "there is no Ingress" gone
echo "== all four scenarios passed"
