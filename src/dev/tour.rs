//! The text that `dev` prints when everything runs.

use std::io::{self, Write};

use super::cluster::Cluster;

/// Prints where everything is and what to try.
pub(super) fn print(cluster: &Cluster, keeps_data: bool) -> io::Result<()> {
    let kubeconfig = cluster.kubeconfig();
    let kubeconfig = kubeconfig.display();
    let gateway = cluster.gateway_address();
    let trigger = cluster.trigger_url();
    let page = cluster.page_url();
    let token = cluster.token_file();
    let token = token.display();
    let kept = if keeps_data {
        "Objects are kept; the simulated gateway forgets its bans, and the operator makes them again at the next start."
    } else {
        "Nothing is kept; --data-dir DIR keeps the objects."
    };
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "\
An API server, a simulated gateway and the IPBlock operator are running. Nothing is really blocked.

  export KUBECONFIG={kubeconfig}

Then try:

  kubectl create -f - <<< '{{\"apiVersion\":\"ops.yiiong.top/v1\",\"kind\":\"IPBlock\",\"metadata\":{{\"name\":\"scanner\"}},\"spec\":{{\"ip\":\"192.0.2.7\",\"duration\":\"1m\",\"reason\":\"port scan\"}}}}'
  kubectl get ipb --watch
  kubectl describe ipb scanner
  kubectl patch ipb scanner --type merge -p '{{\"spec\":{{\"unblock\":true}}}}'
  kubectl delete ipb scanner

The operator's page:       {page}
What the gateway blocks:   http://{gateway}/   (as JSON: http://{gateway}/enforced)
An alert, as Grafana sends it:

  curl -H \"Authorization: Bearer $(cat {token})\" {trigger} \\
    -d '{{\"alerts\":[{{\"status\":\"firing\",\"labels\":{{\"ip\":\"203.0.113.99\",\"duration\":\"2m\"}},\"annotations\":{{\"description\":\"login attempts\"}}}}]}}'

The gateway can be made to fail:   curl -X POST 'http://{gateway}/faults?fault=hang'   and   curl -X DELETE http://{gateway}/faults
{kept}
Only warnings and errors are logged; RUST_LOG=info shows every step. Ctrl-C ends it."
    )?;
    out.flush()
}
