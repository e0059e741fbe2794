//! `cargo run -p monitoring` writes `controller/monitoring/dashboard.json` and `manifests/monitoring/dashboard.json`; with
//! `--check` it compares. `.ci/monitoring` uses the other commands:
//!
//! | command | what it prints |
//! |---|---|
//! | `expressions` | the queries of all panels as a file of recording rules, for promtool |
//! | `queries` | those of the dashboard of programs as lines `panel <tab> query` |
//! | `groups FILE` | the rules of a `PrometheusRule` as Prometheus reads them |

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;

use monitoring::dashboard::{Dashboard, OPERATOR, PROGRAMS};
use monitoring::rules;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match arguments[..] {
        [] => {
            for dashboard in [PROGRAMS, OPERATOR] {
                std::fs::write(top.join(dashboard.file), dashboard.text())?;
            }
        }
        ["--check"] => {
            for dashboard in [PROGRAMS, OPERATOR] {
                if std::fs::read_to_string(top.join(dashboard.file))? != dashboard.text() {
                    let file = dashboard.file;
                    return Err(
                        format!("{file} is not current: run `cargo run -p monitoring`").into(),
                    );
                }
            }
        }
        ["expressions"] => {
            let rules = [PROGRAMS, OPERATOR].iter().flat_map(Dashboard::expressions).enumerate().map(
                |(number, (_, expr))| json!({"record": format!("panel:{number}"), "expr": expr}),
            );
            let rules: Vec<_> = rules.collect();
            println!(
                "{}",
                json!({"groups": [{"name": "dashboard", "rules": rules}]})
            );
        }
        ["queries"] => {
            for (panel, query) in PROGRAMS.expressions() {
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
