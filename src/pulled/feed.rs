//! A list by HTTP: one entry a line, or JSON; asked for with `If-None-Match` and `If-Modified-Since`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    ACCEPT, AUTHORIZATION, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};

use super::definition::{Flavour, Source};
use super::elements::each_element;
use super::entry::{Entries, Entry, Fault, Pulled};
use crate::outbound::Outbound;
use crate::secret::Secret;
use crate::target::Target;
use crate::trigger::single_target;

/// A feed between two pulls.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The last list, with the validators that it came with.
    last: Option<Last>,
}

#[derive(Clone, Debug)]
struct Last {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
    pulled: Pulled,
}

// === impl Feed ===

impl Feed {
    pub(super) async fn pull(
        &mut self,
        source: &Source,
        secret: Option<&Secret>,
        outbound: &Arc<dyn Outbound>,
    ) -> Result<Pulled, Fault> {
        let mut request = http::Request::get(&source.url);
        request = request.header(ACCEPT, "text/plain, application/json;q=0.9, */*;q=0.1");
        if let Some(token) = secret {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if let Some(last) = &self.last {
            for (name, value) in [
                (IF_NONE_MATCH, &last.etag),
                (IF_MODIFIED_SINCE, &last.modified),
            ] {
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
        }
        let request = request.body(Bytes::new());
        let request = request.map_err(|_| Fault::new("the URL or the token cannot be sent"))?;
        let answer = outbound.send(request).await;
        let answer = answer.map_err(|error| Fault::new(error.to_string()))?;
        match (answer.status(), &self.last) {
            (StatusCode::NOT_MODIFIED, Some(last)) => Ok(Pulled {
                changed: false,
                ..last.pulled.clone()
            }),
            (StatusCode::OK, last) => {
                let (body, source) = (answer.body().clone(), source.clone());
                // A million lines take longer than a task may run without a pause.
                let read = tokio::task::spawn_blocking(move || read(&body, &source));
                let mut pulled = read
                    .await
                    .map_err(|error| Fault::new(error.to_string()))??;
                let before = last.as_ref().map(|last| &last.pulled.entries);
                pulled.changed = before != Some(&pulled.entries);
                let header = |name| answer.headers().get(name).cloned();
                self.last = Some(Last {
                    etag: header(ETAG),
                    modified: header(LAST_MODIFIED),
                    pulled: pulled.clone(),
                });
                Ok(pulled)
            }
            _ => Err(Fault::of(&answer)),
        }
    }
}

/// Reads a list. One that is empty, or mostly wrong, is a fault: it is more often an error page than a list.
fn read(body: &[u8], source: &Source) -> Result<Pulled, Fault> {
    let Flavour::Feed { duration, json } = &source.flavour else {
        return Err(Fault::new("it is not a feed"));
    };
    let text = std::str::from_utf8(body).map_err(|_| Fault::new("the list is not UTF-8 text"))?;
    let mut found = Found::default();
    match json {
        None => plain(text).for_each(|text| found.add(text, source)),
        Some((items, ip)) => {
            let is_array = each_element(text, items, |element| {
                let mut pointers = ip.all().iter();
                let text = pointers.find_map(|pointer| element.pointer(pointer)?.as_str());
                // An element without an address counts as wrong.
                found.add(text.unwrap_or_default(), source);
            });
            match is_array {
                Ok(true) => {}
                Ok(false) => return Err(Fault::new("items does not lead to an array")),
                Err(error) => {
                    return Err(Fault::new(format!("the list is not JSON: {error}")));
                }
            }
        }
    }
    let Found {
        targets,
        all,
        wrong,
        left_out,
    } = found;
    if wrong > all / 2 {
        return Err(Fault::new(format!(
            "the answer is not a list of addresses: {wrong} of {all} entries are wrong"
        )));
    }
    if targets.is_empty() {
        return Err(Fault::new(
            "the list has no entry that can be banned; its bans run to their end",
        ));
    }
    let entry = Entry {
        duration: *duration,
        reason: format!("listed by {}", source.name).into(),
    };
    Ok(Pulled {
        entries: Entries::same(targets, entry),
        left_out: left_out + wrong,
        changed: false,
    })
}

/// What a list has so far.
#[derive(Default)]
struct Found {
    targets: BTreeSet<Target>,
    all: usize,
    wrong: usize,
    /// Ranges that are not wanted, and entries past the limit.
    left_out: usize,
}

// === impl Found ===

impl Found {
    fn add(&mut self, text: &str, source: &Source) {
        self.all += 1;
        match single_target(text) {
            None => self.wrong += 1,
            Some(target) if !target.is_host() && !source.allow_ranges => self.left_out += 1,
            Some(target)
                if self.targets.len() >= source.max_entries && !self.targets.contains(&target) =>
            {
                self.left_out += 1;
            }
            Some(target) => {
                self.targets.insert(target);
            }
        }
    }
}

/// The first word of each line; `#` and `;` begin a comment.
fn plain(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let entry = line.split(['#', ';']).next().unwrap_or_default();
        entry.split_whitespace().next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;
    use crate::outbound::InProcess;
    use crate::pulled::RawSource;
    use parking_lot::Mutex;
    use std::time::Duration;

    fn source(extra: &str) -> Source {
        let yaml = format!("{{name: list, type: feed, url: 'https://lists.example/bad', {extra}}}");
        let raw: RawSource = serde_saphyr::from_str(&yaml).unwrap();
        raw.define(&Options::default()).unwrap()
    }

    fn targets(pulled: &Pulled) -> Vec<String> {
        pulled
            .entries
            .targets()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_plain_list_has_an_entry_a_line_and_comments() {
        let list = "# bad hosts\n192.0.2.1\n\n 192.0.2.2\t# seen twice\n2001:DB8::1 ; v6\r\n192.0.2.1\n; end\n203.0.113.0/24\nnonsense\n";
        let pulled = read(list.as_bytes(), &source("")).unwrap();
        assert_eq!(targets(&pulled), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        assert_eq!(pulled.left_out, 2, "the range and the wrong line");
        let ranges = read(list.as_bytes(), &source("allowRanges: true")).unwrap();
        assert_eq!((ranges.entries.len(), ranges.left_out), (4, 1));
        let few = read(list.as_bytes(), &source("maxEntries: 2")).unwrap();
        assert_eq!(targets(&few), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(few.left_out, 3);
    }

    #[test]
    fn a_list_in_json_is_read_by_pointers() {
        let texts = r#"["192.0.2.1", "192.0.2.2"]"#;
        let pulled = read(texts.as_bytes(), &source("format: json")).unwrap();
        assert_eq!(pulled.entries.len(), 2);
        let objects = r#"{"data": [{"ip": "192.0.2.1"}, {"cidr": "192.0.2.2"}, {"other": 1}]}"#;
        let with = source("format: json, items: /data, ip: [/ip, /cidr]");
        let pulled = read(objects.as_bytes(), &with).unwrap();
        assert_eq!((targets(&pulled).len(), pulled.left_out), (2, 1));
        for wrong in ["{", "{}", r#"{"data": "x"}"#] {
            assert!(read(wrong.as_bytes(), &with).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_empty_or_mostly_wrong_is_no_list() {
        for body in [
            "",
            "# nothing today\n",
            "<html>\n<body>\nService unavailable\n</body>\n</html>\n",
            "192.0.2.1\nwrong\nwrong\n",
            "203.0.113.0/24\n",
        ] {
            assert!(read(body.as_bytes(), &source("")).is_err(), "{body}");
        }
        assert!(read(b"\xff\xfe", &source("")).is_err());
        assert!(read(b"192.0.2.1\nwrong\n", &source("")).is_ok());
    }

    #[tokio::test]
    async fn the_validators_of_the_last_list_are_sent_and_304_means_the_same_list() {
        let seen: Arc<Mutex<Vec<http::HeaderMap>>> = Arc::default();
        let record = Arc::clone(&seen);
        let outbound: Arc<dyn Outbound> = Arc::new(InProcess::new(move |request| {
            record.lock().push(request.headers().clone());
            let answer = http::Response::builder();
            let answer = if request.headers().contains_key(IF_NONE_MATCH) {
                answer.status(304).body(Bytes::new())
            } else {
                let answer = answer.header(ETAG, "\"one\"");
                let answer = answer.header(LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
                answer.body(Bytes::from_static(b"192.0.2.1\n"))
            };
            async move { Ok(answer.unwrap()) }
        }));
        let (source, mut feed) = (source(""), Feed::default());
        let token = Secret::new("t0ken");
        let first = feed.pull(&source, Some(&token), &outbound).await.unwrap();
        let second = feed.pull(&source, Some(&token), &outbound).await.unwrap();
        assert!(first.changed && !second.changed);
        assert_eq!(first.entries, second.entries);
        let seen = seen.lock();
        assert_eq!(seen[0][AUTHORIZATION], "Bearer t0ken");
        assert!(seen[0].get(IF_NONE_MATCH).is_none());
        assert_eq!(seen[1][IF_NONE_MATCH], "\"one\"");
        assert_eq!(seen[1][IF_MODIFIED_SINCE], "Thu, 01 Jan 2026 00:00:00 GMT");
    }

    #[tokio::test]
    async fn an_error_of_the_server_is_a_fault_with_its_time() {
        for (status, after) in [(503, Some(120)), (404, None), (304, None), (302, None)] {
            let outbound: Arc<dyn Outbound> = Arc::new(InProcess::new(move |_| {
                let mut answer = http::Response::builder().status(status);
                if let Some(after) = after {
                    answer = answer.header("retry-after", after);
                }
                let answer = answer.body(Bytes::from_static(b"192.0.2.1")).unwrap();
                async move { Ok(answer) }
            }));
            let fault = Feed::default().pull(&source(""), None, &outbound).await;
            let fault = fault.unwrap_err();
            assert!(fault.why.contains(&status.to_string()), "{fault}");
            assert_eq!(fault.after, after.map(Duration::from_secs));
        }
    }
}
