//! Files of bearer tokens: lines `TOKEN,USER,UID` with an optional list of groups. (apiserver: `token/tokenfile`.)

use crate::rbac::User;

/// The users of a file by their tokens.
///
/// # Errors
/// A line with too few columns, an empty token, or a quote without an end.
pub(super) fn users(text: &str) -> Result<Vec<(String, User)>, String> {
    let mut users = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let columns = columns(line).ok_or_else(|| format!("line {number}: a quote has no end"))?;
        let [token, name, uid, groups @ ..] = columns.as_slice() else {
            let count = columns.len();
            return Err(format!(
                "line {number} has {count} of at least 3 columns (token, user name, uid)"
            ));
        };
        if token.is_empty() {
            return Err(format!("line {number} has an empty token"));
        }
        let groups = groups.first().map(String::as_str).unwrap_or_default();
        let groups = groups.split(',').filter(|group| !group.is_empty());
        let mut user = User::new(name, groups);
        user.uid.clone_from(uid);
        users.push((token.clone(), user));
    }
    Ok(users)
}

/// The columns of a line; those in quotes may have commas. `None`: a quote has no end.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let column = columns.last_mut()?;
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                column.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => columns.push(String::new()),
            ' ' if column.is_empty() && !is_quoted => {}
            letter => column.push(letter),
        }
    }
    (!is_quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_a_user_its_uid_and_its_groups() {
        let text = "t1,jane,u1,\"developers,system:masters\"\n\n# comment\nt2, joe,u2\nt3,\"a \"\"b\"\"\",\n";
        let users = users(text).unwrap();
        let shown: Vec<_> = users
            .iter()
            .map(|(token, user)| {
                (
                    token.as_str(),
                    user.name.as_str(),
                    user.uid.as_str(),
                    user.groups.join("+"),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("t1", "jane", "u1", "developers+system:masters".to_owned()),
                ("t2", "joe", "u2", String::new()),
                ("t3", "a \"b\"", "", String::new()),
            ]
        );
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (text, expected) in [
            ("t,jane", "line 1 has 2 of at least 3"),
            ("a,b,c\n,jane,u", "line 2 has an empty token"),
            ("a,b,\"c", "line 1: a quote has no end"),
        ] {
            let error = users(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
