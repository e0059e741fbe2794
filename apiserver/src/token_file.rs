//! Files of bearer tokens: lines of a token, a user, its uid and its groups, as kube-apiserver reads them for `--token-auth-file`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::rbac::User;

/// The reason why a file of tokens is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("--{flag} {path}: {source}")]
    Read {
        flag: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "--{flag} {path}, line {line}: {why}; a line is token,user,uid,\"group1,group2\", the groups optional"
    )]
    Line {
        flag: &'static str,
        path: PathBuf,
        line: usize,
        why: &'static str,
    },
}

/// Reads the tokens of a file, which `flag` names, and their users.
pub(crate) fn read(flag: &'static str, path: &Path) -> Result<Vec<(String, User)>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        flag,
        path: path.into(),
        source,
    })?;
    parse(&text).map_err(|(line, why)| Error::Line {
        flag,
        path: path.into(),
        line,
        why,
    })
}

/// The tokens and their users; or the number of a wrong line, and the reason.
fn parse(text: &str) -> Result<Vec<(String, User)>, (usize, &'static str)> {
    let mut tokens = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = fields(line).ok_or((number, "a quote does not end"))?;
        let mut fields = fields.into_iter();
        let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err((number, "the user or the uid is missing"));
        };
        if token.is_empty() || name.is_empty() {
            return Err((number, "the token or the user is empty"));
        }
        if !seen.insert(token.clone()) {
            return Err((number, "the token has a user already"));
        }
        let groups = fields.next().unwrap_or_default();
        let groups = groups.split(',').map(str::trim);
        let mut user = User::new(name, groups.filter(|group| !group.is_empty()));
        user.uid = uid;
        tokens.push((token, user));
    }
    Ok(tokens)
}

/// The fields of a line, without their quotes and the spaces around them; `None` if a quote does not end.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut()?;
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    let trimmed = fields.into_iter().map(|field| field.trim().to_owned());
    (!is_quoted).then(|| trimmed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_token_a_user_a_uid_and_groups() {
        let text = "a,jane,7,\"dev,ops\"\n\n# comment\nb, joe,\nc,kim,8,dev\n";
        let mut jane = User::new("jane", ["dev", "ops"]);
        jane.uid = "7".to_owned();
        let mut kim = User::new("kim", ["dev"]);
        kim.uid = "8".to_owned();
        let joe = User::new("joe", [] as [&str; 0]);
        let expected = [("a", jane), ("b", joe), ("c", kim)];
        let expected: Vec<_> = expected
            .map(|(token, user)| (token.to_owned(), user))
            .into();
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, why) in [
            ("a,jane,1\nb,joe\n", 2, "missing"),
            ("a,,\n", 1, "empty"),
            ("a,jane,1\na,joe,2\n", 2, "already"),
            ("a,jane,,\"dev\n", 1, "quote"),
        ] {
            let (found, reason) = parse(text).unwrap_err();
            assert!(found == line && reason.contains(why), "{text}: {reason}");
        }
    }
}
