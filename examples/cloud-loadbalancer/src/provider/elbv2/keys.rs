//! Access keys: from the environment, or from a file that is read for every call.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The id.
    pub id: String,
    /// The secret.
    pub secret: String,
    /// The token of temporary keys.
    pub token: Option<String>,
}

/// Where the keys come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// These.
    Given(Keys),
    /// A file in the format of the vendor's tools: `aws_access_key_id = …`, `aws_secret_access_key = …` and, for temporary
    /// keys, `aws_session_token = …`, in the section `[default]` or before any section. It is read for every call, so that
    /// a Secret that changes needs no restart.
    File(PathBuf),
}

// === impl Keys ===

impl Keys {
    /// Reads `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` by `variable`.
    ///
    /// # Errors
    /// The name of a variable that is missing.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| set(name).ok_or_else(|| format!("{name} is not set"));
        Ok(Self {
            id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: set("AWS_SESSION_TOKEN"),
        })
    }

    /// Reads the text of a file; see [`Source::File`].
    ///
    /// # Errors
    /// The name of a key that is missing. The error does not show the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut inside = true;
        let (mut id, mut secret, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[') {
                inside = section.trim_end_matches(']').trim() == "default";
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| inside) else {
                continue;
            };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        let needed = |value: Option<String>, name| {
            value.ok_or_else(|| format!("there is no {name} in the section [default]"))
        };
        Ok(Self {
            id: needed(id, "aws_access_key_id")?,
            secret: needed(secret, "aws_secret_access_key")?,
            token,
        })
    }
}

/// The secret and the token are not shown.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

// === impl Source ===

impl Source {
    /// The keys for the next call.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else. The error names the file and does not show its text.
    pub async fn keys(&self) -> io::Result<Keys> {
        match self {
            Self::Given(keys) => Ok(keys.clone()),
            Self::File(file) => read(file).await,
        }
    }
}

async fn read(file: &Path) -> io::Result<Keys> {
    let named = |kind, text: String| io::Error::new(kind, format!("{}: {text}", file.display()));
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| named(error.kind(), error.to_string()))?;
    Keys::parse(&text).map_err(|error| named(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_format_of_the_vendors_tools() {
        let keys = |token: Option<&str>| Keys {
            id: "AKID".to_owned(),
            secret: "a=b/c".to_owned(),
            token: token.map(str::to_owned),
        };
        let plain = "aws_access_key_id=AKID\naws_secret_access_key=a=b/c\n";
        assert_eq!(Keys::parse(plain), Ok(keys(None)));
        let sections = "# mine\n[other]\naws_access_key_id = X\n\n[default]\n aws_access_key_id = AKID \n\
                        aws_secret_access_key = a=b/c\naws_session_token = T\n[last]\naws_session_token = U\n";
        assert_eq!(Keys::parse(sections), Ok(keys(Some("T"))));
    }

    #[test]
    fn a_file_with_something_else_is_refused_without_showing_it() {
        for (text, missing) in [
            ("", "aws_access_key_id"),
            ("hidden", "aws_access_key_id"),
            ("aws_access_key_id = hidden", "aws_secret_access_key"),
            (
                "aws_access_key_id = hidden\naws_secret_access_key =\n",
                "aws_secret_access_key",
            ),
            (
                "[other]\naws_access_key_id = hidden\naws_secret_access_key = hidden",
                "aws_access_key_id",
            ),
        ] {
            let error = Keys::parse(text).unwrap_err();
            assert!(
                error.contains(missing) && !error.contains("hidden"),
                "{error}"
            );
        }
        let keys = Keys::parse("aws_access_key_id=A\naws_secret_access_key=hidden").unwrap();
        assert!(!format!("{keys:?}").contains("hidden"));
    }

    #[test]
    fn the_environment_names_what_is_missing() {
        let variable = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("A".to_owned()),
            "AWS_SESSION_TOKEN" => Some(String::new()),
            _ => None,
        };
        let error = Keys::from_variables(variable).unwrap_err();
        assert_eq!(error, "AWS_SECRET_ACCESS_KEY is not set");
        let all = |name: &str| variable(name).or(Some("S".to_owned()));
        assert_eq!(Keys::from_variables(all).unwrap().token, None);
    }

    #[tokio::test]
    async fn a_file_is_read_for_every_call() {
        let name = format!("elbv2-keys-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let source = Source::File(file.clone());
        let missing = source.keys().await.unwrap_err();
        assert!(
            missing.to_string().starts_with(&file.display().to_string()),
            "{missing}"
        );
        for id in ["one", "two"] {
            let text = format!("aws_access_key_id={id}\naws_secret_access_key=s\n");
            std::fs::write(&file, text).unwrap();
            assert_eq!(source.keys().await.unwrap().id, id);
        }
        std::fs::remove_file(&file).unwrap();
    }
}
