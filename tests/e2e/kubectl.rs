//! kubectl as a user types it.

use std::path::PathBuf;
use std::time::Duration;

use reeve_apiserver::assets;
use tokio::process::Command;

/// kubectl with that kubeconfig; `None` when the case is skipped for want of kubectl.
pub(crate) fn of(kubeconfig: PathBuf) -> Option<Kubectl> {
    let program = assets::kubectl()?;
    Some(Kubectl {
        program,
        kubeconfig,
    })
}

/// kubectl with a kubeconfig of the test's cluster.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// What a command printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

// === impl Kubectl ===

impl Kubectl {
    /// Runs it; panics when it takes longer than 60 s.
    pub(crate) async fn run(&self, args: &[&str], stdin: Option<&str>) -> Output {
        use tokio::io::AsyncWriteExt;
        let mut child = Command::new(&self.program)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBE_EDITOR", "sed -i s/reason:.*/reason:\\ edited/")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl starts");
        let mut input = child.stdin.take().expect("a piped standard input");
        input
            .write_all(stdin.unwrap_or("").as_bytes())
            .await
            .expect("kubectl reads its input");
        drop(input);
        let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {args:?} ends within 60 s"))
            .expect("kubectl's output");
        Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs it and expects success; what it printed on standard output.
    pub(crate) async fn ok(&self, args: &[&str]) -> String {
        self.apply(args, None).await
    }

    /// The same with something on standard input.
    pub(crate) async fn apply(&self, args: &[&str], stdin: Option<&str>) -> String {
        let output = self.run(args, stdin).await;
        assert_eq!(output.code, Some(0), "kubectl {args:?}: {output:?}");
        output.stdout
    }

    /// Runs it and expects a refusal; what it printed on standard error.
    pub(crate) async fn refused(&self, args: &[&str], stdin: Option<&str>) -> String {
        let output = self.run(args, stdin).await;
        assert_ne!(
            output.code,
            Some(0),
            "kubectl {args:?} is refused: {output:?}"
        );
        output.stderr
    }
}
