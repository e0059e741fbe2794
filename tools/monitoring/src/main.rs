//! `cargo run -p monitoring` writes `controller/monitoring/dashboard.json`; with `--check` it compares. `.ci/monitoring`
//! uses the other commands:
//!
//! | command | what it prints |
//! |---|---|
//! | `expressions` | the queries of all panels as a file of recording rules, for promtool |
//! | `queries` | the same as lines `panel <tab> query` |
//! | `groups FILE` | the rules of a `PrometheusRule` as Prometheus reads them |

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;

use monitoring::{dashboard, rules};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../controller/monitoring/dashboard.json");
    match arguments[..] {
        [] => std::fs::write(file, dashboard::text())?,
        ["--check"] => {
            if std::fs::read_to_string(&file)? != dashboard::text() {
                return Err("dashboard.json is not current: run `cargo run -p monitoring`".into());
            }
        }
        ["expressions"] => {
            let rules = dashboard::expressions().into_iter().enumerate().map(
                |(number, (_, expr))| json!({"record": format!("panel:{number}"), "expr": expr}),
            );
            let rules: Vec<_> = rules.collect();
            println!(
                "{}",
                json!({"groups": [{"name": "dashboard", "rules": rules}]})
            );
        }
        ["queries"] => {
            for (panel, query) in dashboard::expressions() {
                println!("{panel}\t{query}");
            }
        }
        ["groups", file] => println!("{}", rules::groups(Path::new(file))?),
        _ => {
            return Err(
                "the arguments are: [--check | expressions | queries | groups FILE]".into(),
            );
        }
    }
    Ok(())
}
