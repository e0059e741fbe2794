//! kubectl as a user types it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

/// The newest kubectl found, if any: `KUBECTL`, the search path, or the Google Cloud SDK's versioned binaries.
fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("KUBECTL") {
        return Some(path.into());
    }
    let sdk = Path::new("/usr/lib/google-cloud-sdk/bin");
    let versioned = [33, 32, 31, 30, 29].map(|minor| sdk.join(format!("kubectl.1.{minor}")));
    let in_path = std::env::var_os("PATH")
        .map(|path| {
            std::env::split_paths(&path)
                .map(|directory| directory.join("kubectl"))
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    versioned
        .into_iter()
        .chain(in_path)
        .find(|path| path.is_file())
}

/// kubectl with that kubeconfig; `None`, loudly, where there is none.
pub(crate) fn of(kubeconfig: PathBuf) -> Option<Kubectl> {
    let Some(program) = find() else {
        assert!(
            std::env::var_os("REEVE_REQUIRE_ASSETS").is_none(),
            "REEVE_REQUIRE_ASSETS is set and no kubectl was found"
        );
        eprintln!("SKIPPED: kubectl is not installed");
        return None;
    };
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
