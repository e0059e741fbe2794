//! The frame of HTML pages: head, style sheet, links and policy.

/// The style sheet of all pages. [`POLICY`] has its hash.
const STYLE: &str = include_str!("style.css");

/// The policy of debug pages: no script, nothing loaded, nothing sent, and no style but the pages' own. The empty icon in the
/// page, a `data:` URL, keeps browsers from a request for one.
pub const POLICY: &str = "default-src 'none'; img-src data:; style-src 'sha256-a+L67I3Y5NuLE1EtCmMC27+pFwQcZyRkoQ+kRGPU/eA='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A link at the head of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    text: String,
    target: String,
    current: bool,
}

// === impl Link ===

impl Link {
    /// A link with this text to the relative URL `target`.
    pub fn new(text: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            target: target.into(),
            current: false,
        }
    }

    /// Marks the link to the page itself.
    #[must_use]
    pub fn current(mut self, is_current: bool) -> Self {
        self.current = is_current;
        self
    }

    #[cfg(test)]
    pub(super) fn target(&self) -> &str {
        &self.target
    }
}

/// An HTML page without scripts and without resources: `title` and `links` are escaped here, `body` is markup. A browser
/// loads it again after `refresh` seconds, if that is set.
#[must_use]
pub fn document(title: &str, links: &[Link], refresh: Option<u16>, body: &str) -> String {
    let title = escaped(title);
    let refresh = refresh.map_or_else(String::new, |seconds| {
        format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">\n")
    });
    let links: String = links
        .iter()
        .map(|link| {
            let current = if link.current {
                " aria-current=\"page\""
            } else {
                ""
            };
            let (target, text) = (escaped(&link.target), escaped(&link.text));
            format!("<a href=\"{target}\"{current}>{text}</a>\n")
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{refresh}<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <nav>\n{links}</nav>\n{body}</body>\n</html>\n"
    )
}

/// `text` as HTML shows it, also in an attribute.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut markup = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => markup.push_str("&amp;"),
            '<' => markup.push_str("&lt;"),
            '>' => markup.push_str("&gt;"),
            '"' => markup.push_str("&quot;"),
            '\'' => markup.push_str("&#39;"),
            _ => markup.push(one),
        }
    }
    markup
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_policy_allows_the_style_sheet_and_nothing_else() {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(STYLE));
        assert!(
            POLICY.contains(&format!("style-src 'sha256-{hash}';")),
            "the hash of style.css for POLICY: {hash}"
        );
        assert!(POLICY.starts_with("default-src 'none';"));
        assert!(!POLICY.contains("script-src") && !POLICY.contains("unsafe"));
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let link = Link::new("<b>", "x\" onclick=\"y").current(true);
        let page = document("</title><script>", &[link], Some(5), "<p>body</p>\n");
        assert!(
            page.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"),
            "{page}"
        );
        let link = "<a href=\"x&quot; onclick=&quot;y\" aria-current=\"page\">&lt;b&gt;</a>";
        assert!(page.contains(link), "{page}");
        assert!(
            page.contains("http-equiv=\"refresh\" content=\"5\""),
            "{page}"
        );
        assert!(!page.contains("<script"), "{page}");
        assert!(!document("a", &[], None, "").contains("http-equiv"));
    }
}
