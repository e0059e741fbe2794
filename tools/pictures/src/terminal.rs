//! The demo's output in a terminal.

use std::fmt::Write as _;

use crate::escaped;

/// The number of steps of the demo that the picture shows.
const STEPS: usize = 5;
/// The characters of a line.
const COLUMNS: usize = 118;
const LINE: usize = 18;
const MARGIN: usize = 16;
const BAR: usize = 28;

/// The picture of the first steps.
pub(crate) fn picture(output: &str) -> String {
    let lines = shown(output);
    let (width, height) = (
        COLUMNS * 8 + 2 * MARGIN,
        (lines.len() + 1) * LINE + 2 * MARGIN + BAR,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" xml:space=\"preserve\">\n\
         <title>The demo of the IPBlock operator</title>\n\
         <style>text {{ font: 13px ui-monospace, monospace; fill: #c9d1d9; white-space: pre }} .ok {{ fill: #56d364 }} \
         .step {{ fill: #79c0ff; font-weight: bold }} .run {{ fill: #e3b341 }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (circle, colour) in ["#ff5f56", "#ffbd2e", "#27c93f"].into_iter().enumerate() {
        let x = MARGIN + 6 + circle * 20;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"18\" r=\"6\" fill=\"{colour}\"/>"
        );
    }
    let command = "$ cargo run -- dev --demo".to_owned();
    for (number, line) in std::iter::once(&command).chain(&lines).enumerate() {
        let y = MARGIN + BAR + (number + 1) * LINE - 5;
        let text = escaped(line);
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\"{}>{text}</text>",
            class(line)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The first step or expectation of `output` that the picture should have and lacks.
pub(crate) fn missing(picture: &str, output: &str) -> Option<String> {
    let expected = shown(output)
        .into_iter()
        .filter(|line| !class(line).is_empty());
    let mut rest = picture;
    for line in expected {
        let text = format!(">{}</text>", escaped(&line));
        let Some(at) = rest.find(&text) else {
            return Some(line);
        };
        rest = &rest[at + text.len()..];
    }
    None
}

fn class(line: &str) -> &'static str {
    let text = line.trim_start();
    if text.starts_with('✓') {
        " class=\"ok\""
    } else if text.starts_with("$ ") {
        " class=\"run\""
    } else if text.starts_with(|first: char| first.is_ascii_digit())
        && text.contains(". ")
        && line.len() - text.len() <= 2
    {
        " class=\"step\""
    } else {
        ""
    }
}

/// The lines of the first steps, cut to the width of the terminal, with equal ports.
fn shown(output: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut steps = 0;
    for line in output.lines() {
        if class(line).contains("step") {
            steps += 1;
        }
        if steps > STEPS {
            break;
        }
        let line = with_equal_ports(line);
        let mut cut: String = line.chars().take(COLUMNS).collect();
        if line.chars().count() > COLUMNS {
            cut.pop();
            cut.push('…');
        }
        lines.push(cut);
    }
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    lines
}

fn with_equal_ports(line: &str) -> String {
    const HOST: &str = "127.0.0.1:";
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(HOST) {
        let (before, after) = rest.split_at(at + HOST.len());
        text.push_str(before);
        text.push_str("9521");
        rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "The operator.\n\n 1. Ban\n    $ kubectl create <x>\n    0.23 s  created at 127.0.0.1:33\n         ✓  it is active\n";

    #[test]
    fn a_picture_is_current_when_only_times_and_ports_differ() {
        let picture = picture(OUTPUT);
        assert!(picture.contains("127.0.0.1:9521") && picture.contains("&lt;x&gt;"));
        let later = OUTPUT.replace("0.23", "0.31").replace(":33", ":44444");
        assert_eq!(missing(&picture, &later), None);
    }

    #[test]
    fn a_new_expectation_is_missing() {
        let picture = picture(OUTPUT);
        let more = format!("{OUTPUT}         ✓  and lifted\n");
        assert_eq!(missing(&picture, &more).unwrap().trim(), "✓  and lifted");
        let other = OUTPUT.replace("1. Ban", "1. Lift");
        assert!(missing(&picture, &other).is_some());
    }
}
