//! Builds the programs, and reports the versions they were built with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::plan::{Group, Program};

/// Where `benches/peers` is.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the driver is in the workspace of the peers")
}

/// The directory of the binaries: that of this one.
fn binaries() -> Result<PathBuf, String> {
    let exe = env::current_exe().map_err(|error| format!("this program: {error}"))?;
    Ok(exe
        .parent()
        .expect("a program is in a directory")
        .to_owned())
}

/// Builds the programs that `group` needs; with `built`, only finds them.
pub(crate) fn programs(group: &Group, built: bool) -> Result<BTreeMap<Program, PathBuf>, String> {
    let all = [
        Program::Ours,
        Program::Kube,
        Program::Go,
        Program::Server,
        Program::Webhook,
        Program::Load,
    ];
    let needed = all.into_iter().filter(|program| {
        let asked = group
            .columns
            .iter()
            .any(|column| column.program == *program || column.measures == Some(*program));
        asked || (group.server && *program == Program::Server)
    });
    if !built {
        return build(needed);
    }
    let binaries = binaries()?;
    let there = needed.map(|program| (program, binaries.join(program.name())));
    Ok(there.filter(|(_, path)| path.exists()).collect())
}

/// Builds `wanted` with the profile of this program. Cargo and Go skip what is up to date.
pub(crate) fn build(
    wanted: impl IntoIterator<Item = Program>,
) -> Result<BTreeMap<Program, PathBuf>, String> {
    let binaries = binaries()?;
    let target = binaries.parent().expect("a target directory");
    let mut programs = BTreeMap::new();
    for program in wanted {
        let path = binaries.join(program.name());
        let mut build;
        if program == Program::Go {
            if Command::new("go").arg("version").output().is_err() {
                eprintln!("SKIPPED: the Go peers: Go is not installed");
                continue;
            }
            build = Command::new("go");
            build.current_dir(home().join("go"));
            build
                .args(["build", "-buildvcs=false", "-o"])
                .arg(&path)
                .arg(".");
        } else {
            build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            build
                .current_dir(home())
                .arg("build")
                .args(["--locked", "--package"]);
            build.arg(program.name()).arg("--target-dir").arg(target);
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
        }
        eprintln!("building {}", program.name());
        let status = build
            .status()
            .map_err(|error| format!("{build:?}: {error}"))?;
        if !status.success() {
            return Err(format!("{build:?} failed"));
        }
        programs.insert(program, path);
    }
    Ok(programs)
}

/// The machine, the versions and the size of the run, in a sentence each.
pub(crate) fn circumstances(rounds: usize, scale: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let scale = if (scale - 1.0).abs() < f64::EPSILON {
        String::new()
    } else {
        format!(" Counts were multiplied by {scale}: these figures prove nothing.")
    };
    let versions = [
        locked("kube-runtime"),
        required("k8s.io/client-go"),
        required("sigs.k8s.io/controller-runtime"),
    ];
    format!(
        "{rounds} rounds, all peers in turn in each; medians. {cores} cores, {model}. {}; {}; {}.{scale}",
        versions.join(", "),
        version_of("rustc", &["--version"]),
        version_of("go", &["version"]),
    )
}

/// The version of a crate, from the lock file.
pub(crate) fn locked(name: &str) -> String {
    let lock = fs::read_to_string(home().join("Cargo.lock")).unwrap_or_default();
    let mut lines = lock
        .lines()
        .skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1).and_then(|line| line.split('"').nth(1));
    format!("{name} {}", version.unwrap_or("unknown"))
}

/// The version of a module, from go.mod.
fn required(module: &str) -> String {
    let list = fs::read_to_string(home().join("go/go.mod")).unwrap_or_default();
    let version = list.lines().find_map(|line| {
        line.trim()
            .strip_prefix(module)?
            .trim()
            .split(' ')
            .next()
            .map(str::to_owned)
    });
    let name = module.rsplit('/').next().unwrap_or(module);
    let version = version.unwrap_or_else(|| "unknown".to_owned());
    format!("{name} {}", version.trim_start_matches('v'))
}

fn version_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|_| format!("no {program}"))
}

// === impl Program ===

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "peer-ours",
            Self::Before => "peer-ours of before",
            Self::Kube => "peer-kube",
            Self::Go => "peer-go",
            Self::Server => "peer-server",
            Self::Webhook => "peer-webhook",
            Self::Load => "peer-load",
        }
    }
}
