#!/usr/bin/env bash
# The roles and bindings of a real server's own controllers, one a line, as apiserver/src/rbac/controllers.jsonl has them.
#
#   tests/envtest/roles.sh          writes the file
#   tests/envtest/roles.sh --check  compares it with a real server
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/plane.sh"
find_kubectl
file="$root/apiserver/src/rbac/controllers.jsonl"
directory="$(mktemp -d)"
trap 'stop_all; rm -rf "$directory"' EXIT
start_plane "$(real)" "$directory"
"$kubectl" get clusterroles,clusterrolebindings,roles,rolebindings -A -l kubernetes.io/bootstrapping=rbac-defaults -o json |
    python3 -c '
import json, sys
# Those of users and of discovery are in bootstrap.rs.
for_users = {"cluster-admin", "admin", "edit", "view"}
for_all = {"system:discovery", "system:basic-user", "system:public-info-viewer"}
for item in json.load(sys.stdin)["items"]:
    meta = item["metadata"]
    name = meta["name"]
    if name in for_users or name in for_all or name.startswith("system:aggregate-to-"):
        continue
    kept = {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": {
        key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}}
    kept.update({key: value for key, value in item.items() if key not in ("apiVersion", "kind", "metadata")})
    print(json.dumps(kept, sort_keys=True, separators=(",", ":")))
' > "$directory/roles"
if [[ "${1:-}" == --check ]]; then
    diff "$file" "$directory/roles" && echo "the roles are those of a real server"
else
    cp "$directory/roles" "$file"
fi
