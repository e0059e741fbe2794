//! One source text: the names it defines, its imports and the paths in its code.
//!
//! Works on tokens, so that a path inside a macro call counts like any other. Code that only tests compile is excluded.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The content of one module's text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    /// Names that the module defines itself, apart from modules.
    pub(crate) items: Vec<String>,
    /// One entry for each leaf of each `use`.
    pub(crate) uses: Vec<Use>,
    /// Modules declared here, in their own file or inline.
    pub(crate) children: Vec<Child>,
    /// Paths of two segments and more in the code, without those of inline modules.
    pub(crate) paths: Vec<Path>,
    /// Names that occur in the code, each with its first line. A glob import matches against them.
    pub(crate) names: BTreeMap<String, usize>,
    /// The whole text belongs to tests: `#![cfg(test)]`.
    pub(crate) test: bool,
    /// The number of lines that belong to tests.
    pub(crate) test_lines: usize,
}

/// One leaf of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The imported path; `*` is the last segment of a glob.
    pub(crate) path: Path,
    /// The name of the import here; none for a glob and for `as _`.
    pub(crate) name: Option<String>,
    /// Whether the name is visible outside of this module.
    pub(crate) exported: bool,
}

/// A path in code or in a `use`. `::name` has an empty first segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// A module declared with `mod`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// The value of `#[path = "…"]`.
    pub(crate) path: Option<String>,
    /// Compiled only under a condition, so the file may be absent.
    pub(crate) conditional: bool,
    /// The content, unless it is in a file.
    pub(crate) inline: Option<Body>,
}

/// Reads a source text.
///
/// # Errors
/// If the text does not consist of Rust's tokens: the line and the cause.
pub(crate) fn parse(text: &str) -> Result<Body, (usize, String)> {
    let tokens: TokenStream = text
        .parse()
        .map_err(|error: proc_macro2::LexError| (error.span().start().line, error.to_string()))?;
    Ok(body(tokens))
}

fn body(tokens: TokenStream) -> Body {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut body = Body::default();
    let mut rest = &tokens[..];
    while !rest.is_empty() {
        let (attributes, after) = Attributes::read(rest);
        body.test |= attributes.whole_test;
        let (item, next) = after.split_at(item_end(after));
        if attributes.test {
            body.skip_lines(&rest[..rest.len() - next.len()]);
        } else {
            body.scan(&rest[..rest.len() - after.len()]);
            body.item(item, &attributes);
        }
        rest = next;
    }
    body
}

// === impl Body ===

impl Body {
    fn item(&mut self, item: &[TokenTree], attributes: &Attributes) {
        let keyword_at = keyword_at(item);
        self.scan(&item[..keyword_at]);
        let exported = item.first().is_some_and(|token| is_word(token, "pub"));
        let item = &item[keyword_at..];
        let Some(keyword) = item.first().and_then(word) else {
            return self.scan(item);
        };
        match keyword.as_str() {
            "use" => self.import(&item[1..], exported),
            "mod" => self.child(item, attributes),
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                let name = item[1..]
                    .iter()
                    .filter_map(word)
                    .find(|name| !matches!(name.as_str(), "mut" | "auto"));
                self.items.extend(name);
                self.scan(item);
            }
            "macro_rules" => {
                self.items.extend(item.get(2).and_then(word));
                self.scan(item);
            }
            "extern" if item.get(1).is_some_and(|next| is_word(next, "crate")) => {}
            _ => self.scan(item),
        }
    }

    fn child(&mut self, item: &[TokenTree], attributes: &Attributes) {
        let Some(name) = item.get(1).and_then(word) else {
            return;
        };
        let inline = match item.get(2) {
            Some(TokenTree::Group(group)) => Some(body(group.stream())),
            _ => None,
        };
        if let Some(inline) = &inline {
            self.test_lines += inline.test_lines;
        }
        self.children.push(Child {
            name,
            path: attributes.path.clone(),
            conditional: attributes.conditional,
            inline,
        });
    }

    /// Reads the tree of a `use`, up to its semicolon.
    fn import(&mut self, tokens: &[TokenTree], exported: bool) {
        let mut leaves = Vec::new();
        tree(tokens, &[], &mut leaves);
        self.uses.extend(leaves.into_iter().map(|(path, name)| Use {
            path,
            name,
            exported,
        }));
    }

    /// Reads code: paths, names, and the imports and attributes within.
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            if let Some(length) = attribute(&tokens[at..]) {
                let (attributes, after) = Attributes::read(&tokens[at..]);
                if attributes.test {
                    let end = tokens.len() - after.len() + statement_end(after);
                    self.skip_lines(&tokens[at..end]);
                    at = end;
                } else {
                    self.attribute(&tokens[at..at + length]);
                    at += length;
                }
                continue;
            }
            match &tokens[at] {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.scan(&inner);
                    at += 1;
                }
                TokenTree::Ident(_) if starts_import(tokens, at) => {
                    let end = at + to_semicolon(&tokens[at..]);
                    self.import(&tokens[at + 1..end], false);
                    at = end;
                }
                TokenTree::Ident(_) if is_foreign(tokens, at) => at += 1,
                TokenTree::Ident(_) => at += self.path(&tokens[at..]),
                _ => at += 1,
            }
        }
    }

    /// Reads the path that starts here, and returns the number of its tokens.
    fn path(&mut self, tokens: &[TokenTree]) -> usize {
        let mut segments = Vec::new();
        let mut at = 0;
        while let Some(segment) = tokens.get(at).and_then(word) {
            segments.push(segment);
            at += 1;
            if !is_colons(tokens, at) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            at += 2;
        }
        let line = line_of(&tokens[0]);
        self.names.entry(segments[0].clone()).or_insert(line);
        if segments.len() > 1 {
            self.paths.push(Path { segments, line });
            return at;
        }
        1
    }

    /// Reads an attribute: its tokens, and paths in its strings, as serde has them.
    fn attribute(&mut self, tokens: &[TokenTree]) {
        let Some(TokenTree::Group(group)) = tokens.last() else {
            return;
        };
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        if inner.first().is_some_and(|token| is_word(token, "doc")) {
            return;
        }
        self.scan(&inner);
        self.strings(&inner);
    }

    fn strings(&mut self, tokens: &[TokenTree]) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.strings(&inner);
                }
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let text = text.trim_matches('"');
                    let segments: Vec<String> = text.split("::").map(str::to_owned).collect();
                    if segments.len() > 1 && segments.iter().all(|segment| is_name(segment)) {
                        let line = line_of(token);
                        self.names.entry(segments[0].clone()).or_insert(line);
                        self.paths.push(Path { segments, line });
                    }
                }
                _ => {}
            }
        }
    }

    fn skip_lines(&mut self, tokens: &[TokenTree]) {
        if let (Some(first), Some(last)) = (tokens.first(), tokens.last()) {
            self.test_lines += last.span().end().line + 1 - line_of(first);
        }
    }
}

/// The attributes before an item.
#[derive(Debug, Default)]
struct Attributes {
    test: bool,
    whole_test: bool,
    conditional: bool,
    path: Option<String>,
}

// === impl Attributes ===

impl Attributes {
    /// Reads the attributes at the start, and returns the tokens after them.
    fn read(mut tokens: &[TokenTree]) -> (Self, &[TokenTree]) {
        let mut attributes = Self::default();
        while let Some(length) = attribute(tokens) {
            if let TokenTree::Group(group) = &tokens[length - 1] {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                attributes.add(&inner, length == 3);
            }
            tokens = &tokens[length..];
        }
        (attributes, tokens)
    }

    fn add(&mut self, tokens: &[TokenTree], whole: bool) {
        match (tokens.first().and_then(word).as_deref(), tokens.get(1)) {
            (Some("test"), None) => self.test = true,
            (Some("cfg"), Some(TokenTree::Group(group))) => {
                let condition: Vec<TokenTree> = group.stream().into_iter().collect();
                self.conditional = true;
                if whole {
                    self.whole_test |= only_in_tests(&condition);
                } else {
                    self.test |= only_in_tests(&condition);
                }
            }
            (Some("path"), Some(_)) => {
                let value = tokens.get(2).map(ToString::to_string);
                self.path = value.map(|value| value.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
}

/// Whether a condition of `cfg` holds only in test builds.
fn only_in_tests(condition: &[TokenTree]) -> bool {
    let Some(name) = condition.first().and_then(word) else {
        return false;
    };
    let Some(TokenTree::Group(group)) = condition.get(1) else {
        return name == "test" && condition.len() == 1;
    };
    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
    let mut parts = inner
        .split(|token| is_punct(token, ','))
        .filter(|part| !part.is_empty());
    match name.as_str() {
        "all" => parts.any(only_in_tests),
        "any" => !inner.is_empty() && parts.all(only_in_tests),
        _ => false,
    }
}

/// Reads a tree of imports below `prefix` into leaves: the imported path, and its name here.
fn tree(tokens: &[TokenTree], prefix: &[String], leaves: &mut Vec<(Path, Option<String>)>) {
    let mut segments = prefix.to_vec();
    let mut name = None;
    let mut line = tokens.first().map_or(0, line_of);
    let mut at = 0;
    if is_colons(tokens, 0) {
        segments.push(String::new());
        at = 2;
    }
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|token| is_punct(token, ',')) {
                    if !part.is_empty() {
                        tree(part, &segments, leaves);
                    }
                }
                return;
            }
            TokenTree::Punct(punct) if punct.as_char() == '*' => {
                segments.push("*".to_owned());
                leaves.push((Path { segments, line }, None));
                return;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Ident(_) => {
                let segment = word(token).unwrap_or_default();
                line = line_of(token);
                if segment == "as" {
                    name = tokens.get(at + 1).and_then(word);
                    break;
                }
                // `a::{self}` imports `a`.
                if segment != "self" || segments.is_empty() {
                    segments.push(segment);
                }
            }
            _ => {}
        }
        at += 1;
    }
    let name = name.or_else(|| segments.last().cloned());
    let name = name.filter(|name| name != "_");
    leaves.push((Path { segments, line }, name));
}

/// The end of the item that starts here.
fn item_end(tokens: &[TokenTree]) -> usize {
    let keyword = tokens.get(keyword_at(tokens)).and_then(word);
    if matches!(
        keyword.as_deref(),
        Some("use" | "const" | "static" | "type")
    ) {
        return to_semicolon(tokens);
    }
    let ends = |token: &TokenTree| is_punct(token, ';') || is_braces(token);
    let end = tokens.iter().position(ends);
    end.map_or(tokens.len(), |end| end + 1)
}

/// The end of the item, statement, field or match arm that starts here.
fn statement_end(tokens: &[TokenTree]) -> usize {
    let keyword = tokens.get(keyword_at(tokens)).and_then(word);
    match keyword.as_deref() {
        Some("let") => to_semicolon(tokens),
        Some(
            "use" | "const" | "static" | "type" | "fn" | "impl" | "mod" | "struct" | "enum"
            | "trait" | "union" | "macro_rules",
        ) => item_end(tokens),
        _ => {
            let ends = |token: &TokenTree| {
                is_punct(token, ';') || is_punct(token, ',') || is_braces(token)
            };
            let end = tokens.iter().position(ends);
            end.map_or(tokens.len(), |end| end + 1)
        }
    }
}

fn to_semicolon(tokens: &[TokenTree]) -> usize {
    let end = tokens.iter().position(|token| is_punct(token, ';'));
    end.map_or(tokens.len(), |end| end + 1)
}

/// The position of an item's keyword, after its visibility and qualifiers.
fn keyword_at(tokens: &[TokenTree]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next_is = |words: &[&str]| {
            let next = tokens.get(at + 1).and_then(word);
            next.is_some_and(|next| words.contains(&next.as_str()))
        };
        let qualifier = match token {
            TokenTree::Literal(_) => at > 0 && is_word(&tokens[at - 1], "extern"),
            TokenTree::Group(group) => {
                at > 0
                    && is_word(&tokens[at - 1], "pub")
                    && group.delimiter() == Delimiter::Parenthesis
            }
            TokenTree::Ident(_) => match word(token).unwrap_or_default().as_str() {
                "pub" | "default" | "async" | "unsafe" | "auto" => true,
                "const" => next_is(&["fn", "unsafe", "async", "extern"]),
                "extern" => !next_is(&["crate"]),
                _ => false,
            },
            TokenTree::Punct(_) => false,
        };
        if !qualifier {
            return at;
        }
        at += 1;
    }
    0
}

/// The number of tokens of the attribute that starts here; none without an attribute.
fn attribute(tokens: &[TokenTree]) -> Option<usize> {
    if !is_punct(tokens.first()?, '#') {
        return None;
    }
    let at = 1 + usize::from(tokens.get(1).is_some_and(|token| is_punct(token, '!')));
    match tokens.get(at)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(at + 1),
        _ => None,
    }
}

/// Whether a `use` of imports starts here, and not one of captured generics.
fn starts_import(tokens: &[TokenTree], at: usize) -> bool {
    is_word(&tokens[at], "use") && tokens.get(at + 1).is_some_and(|next| !is_punct(next, '<'))
}

/// Whether a name here is a member, a lifetime or the end of a longer path.
fn is_foreign(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    let member = before.is_some_and(|before| is_punct(before, '.'))
        // The end of a range is not a member.
        && !(at >= 2 && is_punct(&tokens[at - 2], '.'));
    let lifetime = before.is_some_and(|before| is_punct(before, '\''));
    member || lifetime || (at >= 2 && is_colons(tokens, at - 2))
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(colon)) if colon.as_char() == ':' && colon.spacing() == Spacing::Joint)
        && tokens.get(at + 1).is_some_and(|token| is_punct(token, ':'))
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_braces(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == text)
}

/// The name of an identifier, without the mark of a raw one.
fn word(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(ident) => {
            let text = ident.to_string();
            Some(text.strip_prefix("r#").unwrap_or(&text).to_owned())
        }
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths in a text: of its imports, and of its code.
    fn paths(text: &str) -> (Vec<String>, Vec<String>) {
        let body = parse(text).unwrap();
        let join = |path: &Path| path.segments.join("::");
        (
            body.uses.iter().map(|import| join(&import.path)).collect(),
            body.paths.iter().map(join).collect(),
        )
    }

    #[test]
    fn every_leaf_of_a_use_is_an_import() {
        type Case = (
            &'static str,
            &'static str,
            &'static [(&'static str, Option<&'static str>)],
        );
        let cases: &[Case] = &[
            ("one name", "use a::B;", &[("a::B", Some("B"))]),
            ("a crate", "use a;", &[("a", Some("a"))]),
            ("renamed", "use a::B as C;", &[("a::B", Some("C"))]),
            ("unnamed", "use a::B as _;", &[("a::B", None)]),
            ("a glob", "use a::*;", &[("a::*", None)]),
            (
                "a tree",
                "use crate::{a::{self, B}, c::*, d as e};",
                &[
                    ("crate::a", Some("a")),
                    ("crate::a::B", Some("B")),
                    ("crate::c::*", None),
                    ("crate::d", Some("e")),
                ],
            ),
            (
                "relative",
                "use self::a::B; use super::super::C;",
                &[("self::a::B", Some("B")), ("super::super::C", Some("C"))],
            ),
            ("of another crate", "use ::a::B;", &[("::a::B", Some("B"))]),
            ("a raw name", "use a::r#type;", &[("a::type", Some("type"))]),
            (
                "in a function",
                "fn f() { use a::B; }",
                &[("a::B", Some("B"))],
            ),
            (
                "captured generics",
                "fn f<'a>() -> impl X + use<'a> { y }",
                &[],
            ),
        ];
        for (name, text, expected) in cases {
            let body = parse(text).unwrap();
            let found: Vec<(String, Option<&str>)> = body
                .uses
                .iter()
                .map(|import| (import.path.segments.join("::"), import.name.as_deref()))
                .collect();
            let found: Vec<(&str, Option<&str>)> = found
                .iter()
                .map(|(path, name)| (path.as_str(), *name))
                .collect();
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn paths_are_found_wherever_code_has_them() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("a call", "fn f() { a::b(1) }", &["a::b"]),
            ("a type", "struct A { b: crate::c::D }", &["crate::c::D"]),
            (
                "a macro's argument",
                "fn f() { info!(\"{}\", super::a()) }",
                &["super::a"],
            ),
            (
                "a macro's rule",
                "macro_rules! m { () => { $crate::a::b() } }",
                &["crate::a::b"],
            ),
            (
                "a generic argument",
                "fn f() { Vec::<a::B>::new() }",
                &["a::B"],
            ),
            (
                "a cast of a type to a trait",
                "fn f() { <a::B as c::D>::e() }",
                &["a::B", "c::D"],
            ),
            (
                "a constant's value",
                "const A: u8 = b::C { d: 1 }.d;",
                &["b::C"],
            ),
            (
                "after a constant",
                "const A: B = B {}; fn f() { c::d() }",
                &["c::d"],
            ),
            ("the end of a range", "fn f() { 0..a::B; }", &["a::B"]),
            ("a derive", "#[derive(a::B)] struct C;", &["a::B"]),
            (
                "a string that serde reads",
                "#[serde(with = \"crate::a\")] struct C;",
                &["crate::a"],
            ),
            ("no string of documentation", "/// crate::a\nstruct C;", &[]),
            ("no method", "fn f() { a.b::<C>() }", &[]),
            ("no other crate's", "fn f() { ::a::b() }", &[]),
            ("a visibility", "pub(in crate::a) struct B;", &["crate::a"]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(paths(text).1, *expected, "{name}");
        }
    }

    #[test]
    fn code_of_tests_is_excluded_and_the_code_after_it_is_not() {
        let cases: &[(&str, &str, &[&str])] = &[
            (
                "a module",
                "#[cfg(test)] mod t { fn f() { a::b() } } fn g() { c::d() }",
                &["c::d"],
            ),
            (
                "an import",
                "#[cfg(test)] use a::b; fn g() { c::d() }",
                &["c::d"],
            ),
            (
                "a function",
                "#[test] fn f() { a::b() } fn g() { c::d() }",
                &["c::d"],
            ),
            (
                "a method",
                "impl A { #[cfg(test)] fn f() -> X<Y, Z> { a::b() } fn g() { c::d() } }",
                &["c::d"],
            ),
            (
                "a field",
                "struct A { #[cfg(test)] b: a::B, c: c::D }",
                &["c::D"],
            ),
            (
                "a statement",
                "fn f() { #[cfg(test)] let x = a::B {}; c::d() }",
                &["c::d"],
            ),
            (
                "behind other attributes",
                "#[a] #[cfg(test)] #[b] fn f() { a::b() } fn g() { c::d() }",
                &["c::d"],
            ),
            (
                "all(test, …)",
                "#[cfg(all(test, unix))] fn f() { a::b() }",
                &[],
            ),
            (
                "any(test, …) is product code",
                "#[cfg(any(test, unix))] fn f() { a::b() }",
                &["a::b"],
            ),
            (
                "not(test) is product code",
                "#[cfg(not(test))] fn f() { a::b() }",
                &["a::b"],
            ),
            (
                "a feature named test is product code",
                "#[cfg(feature = \"test\")] fn f() { a::b() }",
                &["a::b"],
            ),
        ];
        for (name, text, expected) in cases {
            let (uses, paths) = paths(text);
            assert!(uses.is_empty(), "{name}");
            assert_eq!(paths, *expected, "{name}");
        }
    }

    #[test]
    fn lines_of_tests_are_counted() {
        let text = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn g() {}\n}\n";
        assert_eq!(parse(text).unwrap().test_lines, 5);
    }

    #[test]
    fn a_text_that_is_not_rust_is_refused_with_its_line() {
        assert_eq!(parse("fn f() {}\n}").unwrap_err().0, 2);
    }
}
