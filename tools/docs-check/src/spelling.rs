//! Misspelt words. Names count, too: users read them.

use std::error::Error;

use crate::allowed::Allowed;
use crate::files::Files;

/// The ends of the names of files that are read.
const TEXTS: [&str; 7] = [".md", ".rs", ".sh", ".toml", ".yaml", ".yml", "Dockerfile"];

/// Checks all texts, and returns a line for each finding.
pub(crate) fn check(files: &Files, allowed: &mut Allowed) -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for path in files.paths().filter(|path| is_text(path)) {
        let Some(text) = files.text(path)? else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for word in words(&without_escapes(line)) {
                if let Some(right) = correction(word)
                    && !allowed.has(path, word)
                {
                    found.push(format!("{path}:{}: {word}: {right}", index + 1));
                }
            }
        }
    }
    Ok(found)
}

fn is_text(path: &str) -> bool {
    let is_script = path.starts_with(".ci/") && !path.ends_with(".allow");
    is_script || TEXTS.iter().any(|end| path.ends_with(end))
}

/// The line with a space in place of each `\\n`, `\\t`, …
fn without_escapes(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(one) = chars.next() {
        if one == '\\' {
            chars.next();
            text.push(' ');
        } else {
            text.push(one);
        }
    }
    text
}

/// The words of a line: letters between other characters, and the parts of `camelCase`. Letters beside digits belong to
/// names and numbers, and are skipped, as are words with letters of other languages.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|one: char| !(one.is_alphanumeric() || one == '\''))
        .flat_map(|part| part.split('\''))
        .filter(|part| part.bytes().all(|byte| byte.is_ascii_alphabetic()))
        .flat_map(humps)
        .filter(|word| word.len() > 2)
}

/// The parts of a name in `camelCase`: `HTTPServer` is `HTTP` and `Server`.
fn humps(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let upper = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_uppercase);
    let lower = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_lowercase);
    let mut parts = Vec::new();
    let mut start = 0;
    for at in 1..bytes.len() {
        if upper(at) && (lower(at - 1) || lower(at + 1)) {
            parts.push(&name[start..at]);
            start = at;
        }
    }
    parts.push(&name[start..]);
    parts
}

/// The right forms of a misspelt word.
fn correction(word: &str) -> Option<String> {
    let key = unicase::UniCase::new(word);
    let forms = typos_dict::WORD.find(&key)?;
    Some(match forms {
        [] => "not a word".to_owned(),
        forms => format!("should be {}", forms.join(" or ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parts_of_names_and_have_letters_only() {
        let found: Vec<&str> =
            words("let recieveHTTPServer = \"isn't x86_64 größe\"; // read_teh_file").collect();
        let expected = [
            "let", "recieve", "HTTP", "Server", "isn", "read", "teh", "file",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn escapes_in_texts_are_not_letters() {
        let line = without_escapes(r#"let a = "one\nNot\tnice";"#);
        let found: Vec<&str> = words(&line).collect();
        assert_eq!(found, ["let", "one", "Not", "nice"]);
    }

    #[test]
    fn a_misspelt_word_is_found_in_every_case() {
        for word in ["recieve", "Recieve", "RECIEVE"] {
            assert_eq!(
                correction(word).as_deref(),
                Some("should be receive"),
                "{word}"
            );
        }
        assert_eq!(correction("receive"), None);
    }
}
