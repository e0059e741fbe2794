//! The page of the enforced bans, for a browser.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::state::{Api, Entry};

/// A page with one table, which reloads itself.
pub(crate) fn html(entries: &[Entry], now: Timestamp) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"refresh\" content=\"2\"><title>Simulated gateway</title><style>\
         body{font:15px system-ui;margin:2rem}td,th{text-align:left;padding:.2rem 1.5rem .2rem 0}\
         </style></head><body><h1>Simulated gateway</h1>",
    );
    if entries.is_empty() {
        page.push_str("<p>Nothing is blocked.</p>");
    } else {
        page.push_str("<table><tr><th>blocked</th><th>by</th><th>since</th><th>until</th></tr>");
        for entry in entries {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&entry.target),
                entry.api.name(),
                seconds(entry.since),
                entry.until.map_or_else(|| "removed".to_owned(), seconds),
            );
        }
        page.push_str("</table>");
    }
    let _ = write!(
        page,
        "<p>{} blocked at {}. As JSON: <a href=\"/enforced\">/enforced</a></p></body></html>",
        entries.len(),
        seconds(now)
    );
    page
}

// === impl Api ===

impl Api {
    /// `iptables` or `xdp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Xdp => "xdp",
        }
    }
}

fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_what_is_blocked_and_no_markup_of_others() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let entry = Entry {
            target: "<b>192.0.2.7".into(),
            api: Api::Xdp,
            since: now,
            until: None,
        };
        let page = html(&[entry], now);
        assert!(
            page.contains("<td>&lt;b&gt;192.0.2.7</td><td>xdp</td><td>2023-11-14T22:13:20Z</td>")
        );
        assert!(html(&[], now).contains("Nothing is blocked"));
    }
}
