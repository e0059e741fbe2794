//! Errors of serde_json without the values that they quote.

/// The text of an error, without the values that it quotes.
pub fn redacted(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // "missing field `x`" names a field of the type, not of the document. All other errors may quote data.
    if text.starts_with("missing field") {
        return text;
    }
    let place = format!("line {} column {}", error.line(), error.column());
    let problem = match error.classify() {
        serde_json::error::Category::Data => text
            .split([':', '`', '"'])
            .next()
            .unwrap_or_default()
            .trim(),
        serde_json::error::Category::Eof => "the document ends too early",
        serde_json::error::Category::Syntax => "not valid JSON",
        serde_json::error::Category::Io => "reading failed",
    };
    // The last ", expected " is serde's own: the text after it comes from the type.
    let expected = text.rfind(", expected ").map_or("", |at| &text[at..]);
    let expected = expected.split(" at line ").next().unwrap_or_default();
    format!("{problem}{expected} at {place}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn an_error_says_what_was_expected_and_never_what_was_there() {
        let document = r#"{"metadata":{"name":"s"},"data":"hunter2, expected nothing"}"#;
        let error = serde_json::from_str::<Secret>(document).unwrap_err();
        assert!(
            error.to_string().contains("hunter2"),
            "else the test proves nothing"
        );
        let text = redacted(&error);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.contains("invalid type, expected a map at line 1"),
            "{text}"
        );
    }
}
