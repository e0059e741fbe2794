//! The links, headings and inline code of a page.

use std::collections::BTreeMap;

/// The parts of a page that the checks need.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// The anchors of headings and of `id="…"`.
    pub(crate) anchors: Vec<String>,
    /// The targets of links and pictures.
    pub(crate) links: Vec<Found>,
    /// Inline code.
    pub(crate) code: Vec<Found>,
    /// The labels of `[text][label]`.
    pub(crate) labels: Vec<Found>,
    /// The labels of `[label]: target`.
    pub(crate) defined: Vec<String>,
}

/// A text and its line, from 1 on.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) line: usize,
    pub(crate) text: String,
}

// === impl Page ===

impl Page {
    /// Reads a page. Code blocks and comments are skipped. Links and inline code that go over several lines are not
    /// found.
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut slugs = BTreeMap::new();
        let mut fence: Option<String> = None;
        let mut in_comment = false;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let trimmed = line.trim_start_matches([' ', '>']);
            if let Some(open) = &fence {
                if trimmed.starts_with(open.as_str())
                    && trimmed.trim_matches(open_char(open)).trim().is_empty()
                {
                    fence = None;
                }
                continue;
            }
            if let Some(open) = fence_of(trimmed) {
                fence = Some(open);
                continue;
            }
            let line = without_comments(line, &mut in_comment);
            if let Some(heading) = heading_of(&line) {
                page.anchors.push(anchor(heading, &mut slugs));
            }
            let prose = page.take_code(&line, number);
            page.take_links(&prose, number);
        }
        page
    }

    /// Takes the inline code of a line, and returns the line with spaces in its place.
    fn take_code(&mut self, line: &str, number: usize) -> String {
        let mut prose = String::new();
        let mut rest = line;
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            let (before, after) = (&rest[..start], &rest[start + ticks..]);
            prose.push_str(before);
            let Some(length) = end_of_code(after, ticks) else {
                prose.push_str(&rest[start..start + ticks]);
                rest = after;
                continue;
            };
            self.code.push(Found {
                line: number,
                text: after[..length].trim().to_owned(),
            });
            prose.push(' ');
            rest = &after[length + ticks..];
        }
        prose.push_str(rest);
        prose
    }

    fn take_links(&mut self, prose: &str, number: usize) {
        for (at, _) in prose.match_indices("][") {
            let label = prose[at + 2..].split(']').next().unwrap_or_default();
            self.labels.push(Found {
                line: number,
                text: label.to_lowercase(),
            });
        }
        let mut found = |text: &str| {
            self.links.push(Found {
                line: number,
                text: text.to_owned(),
            });
        };
        for (at, _) in prose.match_indices("](") {
            let inner = &prose[at + 2..];
            let mut depth = 0;
            let end = inner.find(|one| {
                depth += i32::from(one == '(') - i32::from(one == ')');
                depth < 0
            });
            if let Some(end) = end {
                found(target(&inner[..end]));
            }
        }
        // `[name]: target`
        if prose.starts_with('[')
            && let Some((label, definition)) = prose.split_once("]: ")
        {
            found(target(definition));
            self.defined.push(label[1..].to_lowercase());
        }
        for attribute in ["href=\"", "src=\"", "srcset=\""] {
            for (at, _) in prose.match_indices(attribute) {
                let value = &prose[at + attribute.len()..];
                found(value.split('"').next().unwrap_or_default());
            }
        }
        for attribute in [" id=\"", " name=\""] {
            for (at, _) in prose.match_indices(attribute) {
                let value = &prose[at + attribute.len()..];
                self.anchors
                    .extend(value.split('"').next().map(str::to_owned));
            }
        }
    }
}

fn open_char(fence: &str) -> char {
    fence.chars().next().unwrap_or('`')
}

/// The start of a fenced code block.
fn fence_of(line: &str) -> Option<String> {
    let first = line.chars().next().filter(|one| "`~".contains(*one))?;
    let length = line.len() - line.trim_start_matches(first).len();
    // Code with three ticks may begin a line of prose, and end in it.
    let is_fence = length >= 3 && !(first == '`' && line[length..].contains('`'));
    is_fence.then(|| line[..length].to_owned())
}

/// The length of code that `ticks` ticks end.
fn end_of_code(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(start) = text[at..].find('`') {
        let start = at + start;
        let run = text[start..].len() - text[start..].trim_start_matches('`').len();
        if run == ticks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

/// The line without HTML comments; `in_comment` says whether it begins, and then whether it ends, in one.
fn without_comments(line: &str, in_comment: &mut bool) -> String {
    let mut text = String::new();
    let mut rest = line;
    loop {
        let mark = if *in_comment { "-->" } else { "<!--" };
        let Some((before, after)) = rest.split_once(mark) else {
            break;
        };
        if !*in_comment {
            text.push_str(before);
        }
        *in_comment = !*in_comment;
        rest = after;
    }
    if !*in_comment {
        text.push_str(rest);
    }
    text
}

/// The target of a link, without its title.
fn target(inner: &str) -> &str {
    let inner = inner.trim();
    match inner
        .strip_prefix('<')
        .and_then(|inner| inner.split_once('>'))
    {
        Some((target, _)) => target,
        None => inner.split_whitespace().next().unwrap_or_default(),
    }
}

fn heading_of(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let heading = text
        .strip_prefix(' ')
        .filter(|_| (1..=6).contains(&level))?;
    Some(heading.trim_end_matches([' ', '#']).trim())
}

/// The anchor of a heading, as GitHub makes it: the second one of the same text ends with `-1`.
fn anchor(heading: &str, slugs: &mut BTreeMap<String, usize>) -> String {
    // The text of a link, without its target.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let slug: String = text
        .chars()
        .filter_map(|one| match one {
            ' ' => Some('-'),
            '-' | '_' => Some(one),
            _ if one.is_alphanumeric() => Some(one),
            _ => None,
        })
        .flat_map(char::to_lowercase)
        .collect();
    let seen = slugs.entry(slug.clone()).or_default();
    *seen += 1;
    match *seen {
        1 => slug,
        seen => format!("{slug}-{}", seen - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: &[Found]) -> Vec<(usize, &str)> {
        let found = found.iter();
        found
            .map(|found| (found.line, found.text.as_str()))
            .collect()
    }

    #[test]
    fn links_of_every_form_are_found_and_those_in_code_are_not() {
        let page = Page::read(
            "[a](a.md) and ![p](p.svg \"title\"), [`b`](<b c.md>) [w](x_(y).md)\n\
             `[code](code.md)` ``a ` [code](code.md)``\n\
             ```sh\n[block](block.md)\n```\n\
             [name]: named.md\n\
             <a href=\"h.md\"><img src=\"i.png\"></a> <!-- [c](c.md) -->\n\
             <!-- [d](d.md)\n[e](e.md) --> [f](f.md)\n",
        );
        let expected = [
            (1, "a.md"),
            (1, "p.svg"),
            (1, "b c.md"),
            (1, "x_(y).md"),
            (6, "named.md"),
            (7, "h.md"),
            (7, "i.png"),
            (9, "f.md"),
        ];
        assert_eq!(texts(&page.links), expected);
        let code = [(1, "b"), (2, "[code](code.md)"), (2, "a ` [code](code.md)")];
        assert_eq!(texts(&page.code), code);
    }

    #[test]
    fn labels_and_their_definitions_are_found() {
        let page = Page::read("[one][a] and [`two`][B], `x[0][1]`\n\n[a]: a.md\n[b]: b.md\n");
        assert_eq!(texts(&page.labels), [(1, "a"), (1, "b")]);
        assert_eq!(page.defined, ["a", "b"]);
    }

    #[test]
    fn anchors_are_those_of_the_rendered_page() {
        let page = Page::read(
            "# One: `two` & *three*\n## See [the page](x.md)\n### Again\n### Again\n#none\n```\n# code\n```\n<a id=\"own\"></a>\n## Größe_x - y\n",
        );
        let expected = [
            "one-two--three",
            "see-the-page",
            "again",
            "again-1",
            "own",
            "größe_x---y",
        ];
        assert_eq!(page.anchors, expected);
    }
}
