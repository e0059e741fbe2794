//! The way of the data from the API server to a reconcile and back.

use std::fmt::Write as _;

use crate::escaped;

/// A box: its place in the grid, its name, and what it does.
struct Part {
    column: usize,
    row: usize,
    name: &'static str,
    does: [&'static str; 2],
}

const WIDTH: usize = 190;
const HEIGHT: usize = 76;
const GAP: (usize, usize) = (64, 56);
const MARGIN: usize = 20;

const fn part(column: usize, row: usize, name: &'static str, does: [&'static str; 2]) -> Part {
    Part {
        column,
        row,
        name,
        does,
    }
}

const PARTS: [Part; 9] = [
    part(0, 0, "API server", ["lists, watches, writes", ""]),
    part(
        1,
        0,
        "Reflector",
        ["one pass over the bytes,", "an answer to each failure"],
    ),
    part(2, 0, "FIFO", ["ordered, bounded", ""]),
    part(3, 0, "Indexer", ["reads never wait", "for a write"]),
    part(
        3,
        1,
        "Shared informer",
        ["a bounded queue", "for each handler"],
    ),
    part(
        2,
        1,
        "Work queue",
        ["once a key; delay,", "back-off, priority"],
    ),
    part(1, 1, "Workers", ["never two", "on one key"]),
    part(
        0,
        1,
        "reconcile(key)",
        ["reads the caches, decides,", "writes, returns when again"],
    ),
    part(
        2,
        2,
        "Own writes",
        ["a key waits until the", "caches show what it wrote"],
    ),
];

/// From box to box, with what passes.
const ARROWS: [(usize, usize, &str); 9] = [
    (0, 1, "watch"),
    (1, 2, "deltas"),
    (2, 3, ""),
    (3, 4, "events"),
    (4, 5, "keys"),
    (5, 6, "get"),
    (6, 7, ""),
    (7, 0, "writes"),
    (8, 5, ""),
];

pub(crate) fn picture() -> String {
    let width = 4 * WIDTH + 3 * GAP.0 + 2 * MARGIN;
    let height = 3 * HEIGHT + 2 * GAP.1 + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>The way of the data from the API server to a reconcile and back</title>\n\
         <style>text {{ font: 13px system-ui, sans-serif; fill: #57606a; text-anchor: middle }} .name {{ font-weight: 600; \
         font-size: 15px; fill: #0b3d5c }} .arrow {{ stroke: #57606a; stroke-width: 1.5; fill: none; marker-end: url(#head) }}</style>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"#57606a\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    for (from, to, what) in &ARROWS {
        arrow(&mut svg, &PARTS[*from], &PARTS[*to], what);
    }
    for part in &PARTS {
        let (x, y) = corner(part);
        let middle = x + WIDTH / 2;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#eaf4fb\" stroke=\"#4a90c2\"/>\n\
             <text class=\"name\" x=\"{middle}\" y=\"{}\">{}</text>",
            y + 24,
            escaped(part.name)
        );
        for (line, text) in part.does.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text x=\"{middle}\" y=\"{}\">{}</text>",
                y + 45 + line * 18,
                escaped(text)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn corner(part: &Part) -> (usize, usize) {
    (
        MARGIN + part.column * (WIDTH + GAP.0),
        MARGIN + part.row * (HEIGHT + GAP.1),
    )
}

/// A straight line between the facing sides of two neighbours.
fn arrow(svg: &mut String, from: &Part, to: &Part, what: &str) {
    let ((x1, y1), (x2, y2)) = (corner(from), corner(to));
    let (half, level) = (WIDTH / 2, HEIGHT / 2);
    let (start, end) = if from.row == to.row {
        if x1 < x2 {
            ((x1 + WIDTH, y1 + level), (x2, y2 + level))
        } else {
            ((x1, y1 + level), (x2 + WIDTH, y2 + level))
        }
    } else if y1 < y2 {
        ((x1 + half, y1 + HEIGHT), (x2 + half, y2))
    } else {
        ((x1 + half, y1), (x2 + half, y2 + HEIGHT))
    };
    let _ = writeln!(
        svg,
        "<path class=\"arrow\" d=\"M{} {}L{} {}\"/>",
        start.0, start.1, end.0, end.1
    );
    let (x, y) = (start.0.midpoint(end.0), start.1.midpoint(end.1));
    let (x, y) = if from.row == to.row {
        (x, y - 6)
    } else {
        (x + 30, y + 4)
    };
    if !what.is_empty() {
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{what}</text>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_join_neighbours() {
        for (from, to, what) in &ARROWS {
            let (from, to) = (&PARTS[*from], &PARTS[*to]);
            let apart = from.column.abs_diff(to.column) + from.row.abs_diff(to.row);
            assert_eq!(apart, 1, "{} to {}: {what}", from.name, to.name);
        }
    }
}
