//! Redirections of webhooks, followed as Go's HTTP client follows them.

use http::header::LOCATION;
use http::{Method, Response, Uri};

/// The most redirections of one call. (Go: `defaultCheckRedirect`.)
pub(super) const MOST_REDIRECTIONS: u32 = 10;

/// The next request after a redirection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) url: String,
    /// Whether the method and the body stay; else it is a GET without a body.
    pub(super) is_same: bool,
}

/// The request that an answer to `method` on `url` leads to; `None` without a redirection.
///
/// # Errors
/// A redirection without a place, and one to a place that is not HTTPS.
pub(super) fn next<B>(
    response: &Response<B>,
    method: &Method,
    url: &str,
) -> Result<Option<Next>, String> {
    let code = response.status().as_u16();
    let is_same = match code {
        301..=303 => *method == Method::GET,
        307 | 308 => true,
        _ => return Ok(None),
    };
    let Some(place) = response.headers().get(LOCATION) else {
        // Other codes without a place are answers.
        return if matches!(code, 307 | 308) {
            Ok(None)
        } else {
            Err(format!("{code} response missing Location header"))
        };
    };
    let place = place.to_str().map_err(|error| error.to_string())?;
    let url = resolved(url, place)?;
    if !url.starts_with("https://") {
        return Err(format!(
            "a redirection to {url:?} is not followed: it is not HTTPS"
        ));
    }
    Ok(Some(Next { url, is_same }))
}

/// The place relative to `base`.
fn resolved(base: &str, place: &str) -> Result<String, String> {
    let scheme = place.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.ends_with(':') {
        return Ok(place.to_owned());
    }
    let base: Uri = base.parse().map_err(|error| format!("{error}"))?;
    let scheme = base.scheme_str().unwrap_or("https");
    if let Some(rest) = place.strip_prefix("//") {
        return Ok(format!("{scheme}://{rest}"));
    }
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let path = if place.starts_with('/') {
        place.to_owned()
    } else if place.starts_with('?') {
        format!("{}{place}", base.path())
    } else {
        let (folder, _) = base.path().rsplit_once('/').unwrap_or_default();
        format!("{folder}/{place}")
    };
    Ok(format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(code: u16, place: &str, method: &Method) -> Result<Option<Next>, String> {
        let mut response = Response::builder().status(code);
        if !place.is_empty() {
            response = response.header(LOCATION, place);
        }
        next(
            &response.body(()).unwrap(),
            method,
            "https://a:1/b/c?timeout=1s",
        )
    }

    fn to(url: &str, is_same: bool) -> Result<Option<Next>, String> {
        let url = url.to_owned();
        Ok(Some(Next { url, is_same }))
    }

    #[test]
    fn two_codes_keep_the_request_and_three_make_it_a_get() {
        for code in [307, 308] {
            assert_eq!(
                after(code, "/d?x=1", &Method::POST),
                to("https://a:1/d?x=1", true)
            );
        }
        for code in [301, 302, 303] {
            assert_eq!(
                after(code, "d", &Method::POST),
                to("https://a:1/b/d", false)
            );
            assert_eq!(after(code, "//e/f", &Method::GET), to("https://e/f", true));
        }
        assert_eq!(after(200, "/d", &Method::POST), Ok(None));
        assert_eq!(after(304, "/d", &Method::POST), Ok(None));
    }

    #[test]
    fn a_place_is_needed_and_https() {
        assert_eq!(after(307, "", &Method::POST), Ok(None));
        let missing = after(302, "", &Method::POST).unwrap_err();
        assert_eq!(missing, "302 response missing Location header");
        assert!(after(307, "http://a/", &Method::POST).is_err());
        assert_eq!(
            after(307, "https://z:2/", &Method::POST),
            to("https://z:2/", true)
        );
    }
}
