//! `pattern`: Go's regular expressions, translated for the `regex` crate.
//!
//! The two languages look alike and differ in details that schemas meet: in Go `\d`, `\w` and `\s` are ASCII, a `{`
//! that counts nothing and a `[` inside a class are themselves, a count ends at 1000, and nothing is repeated twice.
//! An expression that Go cannot read is refused with Go's text. (Go: `regexp/syntax`.)

use regex::Regex;

/// A `pattern`, and its expression if it is valid.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The original text.
    pub(crate) text: String,
    expression: Option<Regex>,
}

/// The largest count of a repetition, nested ones multiplied.
const LARGEST_COUNT: u32 = 1000;

const NAMED_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Parses a pattern and writes the equivalent for the engine.
struct Translator<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    /// For each open group, the outermost first: what may be repeated in it.
    groups: Vec<Group>,
    /// The start of the repetition before this position.
    last_repetition: Option<&'a str>,
}

/// The current alternative of a group.
#[derive(Default)]
struct Group {
    /// The product of nested counts of the element before; `None` without one.
    before: Option<u32>,
    /// The largest product in the group.
    largest: u32,
}

type Result<T> = std::result::Result<T, String>;

// === impl Pattern ===

impl Pattern {
    /// Parses a pattern. An invalid one matches everything; definitions with such are refused.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            expression: Self::compile(text).ok(),
        }
    }

    /// The expression of a pattern.
    ///
    /// # Errors
    /// The error of Go, or of our engine, for an invalid one.
    pub(crate) fn compile(text: &str) -> Result<Regex> {
        Regex::new(&translate(text)?).map_err(|error| error.to_string())
    }

    /// Whether some part of `text` matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.expression
            .as_ref()
            .is_none_or(|expression| expression.is_match(text))
    }

    /// The error of Go's `regexp.Compile` for an invalid pattern.
    pub(crate) fn error(text: &str) -> Option<String> {
        translate(text).err()
    }
}

fn translate(pattern: &str) -> Result<String> {
    let mut translator = Translator {
        whole: pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        groups: vec![Group::default()],
        last_repetition: None,
    };
    while let Some(next) = translator.peek() {
        translator.token(next)?;
    }
    if translator.groups.len() > 1 {
        return Err(error("missing closing )", pattern));
    }
    Ok(translator.out)
}

fn error(code: &str, at: &str) -> String {
    format!("error parsing regexp: {code}: `{at}`")
}

// === impl Translator ===

impl<'a> Translator<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The text read since `start`.
    fn since(&self, start: &'a str) -> &'a str {
        &start[..start.len() - self.rest.len()]
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Records an element that can be repeated.
    fn one(&mut self, count: u32) {
        let group = self.group();
        group.before = Some(count);
        group.largest = group.largest.max(count);
    }

    fn literal(&mut self, character: char) {
        self.out
            .push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
        self.one(1);
    }

    fn token(&mut self, next: char) -> Result<()> {
        let last_repetition = self.last_repetition.take();
        match next {
            '(' if self.rest.starts_with("(?") => self.special_group()?,
            '(' => {
                self.next();
                self.out.push_str("(?:");
                self.groups.push(Group::default());
            }
            ')' => {
                self.next();
                if self.groups.len() < 2 {
                    return Err(error("unexpected )", self.whole));
                }
                let closed = self.groups.pop().unwrap_or_default();
                self.out.push(')');
                self.one(closed.largest.max(1));
            }
            '|' => {
                self.next();
                self.out.push('|');
                self.group().before = None;
            }
            '^' | '$' | '.' => {
                self.next();
                self.out.push(next);
                self.one(1);
            }
            '[' => self.class()?,
            '*' | '+' | '?' => {
                let start = self.rest;
                self.next();
                self.repetition(start, 1, last_repetition)?;
            }
            '{' => {
                let start = self.rest;
                match self.count() {
                    None => {
                        self.rest = &start[1..];
                        self.literal('{');
                    }
                    Some(None) => return Err(error("invalid repeat count", self.since(start))),
                    Some(Some(count)) => self.repetition(start, count, last_repetition)?,
                }
            }
            '\\' => self.escape()?,
            _ => {
                self.next();
                self.literal(next);
            }
        }
        Ok(())
    }

    /// Ends a repetition that began at `start`, and multiplies the element before by `count`.
    fn repetition(
        &mut self,
        start: &'a str,
        count: u32,
        last_repetition: Option<&'a str>,
    ) -> Result<()> {
        self.eat("?");
        if let Some(last) = last_repetition {
            let both = self.since(last);
            return Err(error("invalid nested repetition operator", both));
        }
        let written = self.since(start);
        let Some(before) = self.group().before else {
            return Err(error("missing argument to repetition operator", written));
        };
        let product = before.saturating_mul(count.max(1));
        if count > 1 && product > LARGEST_COUNT {
            return Err(error("invalid repeat count", written));
        }
        self.out.push_str(written);
        self.one(product);
        self.last_repetition = Some(start);
        Ok(())
    }

    /// `{2}`, `{2,}` or `{2,3}`: the count that determines the size. `None` when it is not a count, `Some(None)` when
    /// the count is not allowed.
    fn count(&mut self) -> Option<Option<u32>> {
        self.next();
        let least = self.digits()?;
        let most = if self.eat(",") {
            if self.rest.starts_with('}') {
                None
            } else {
                Some(self.digits()?)
            }
        } else {
            Some(least)
        };
        if !self.eat("}") {
            return None;
        }
        let valid = least <= LARGEST_COUNT
            && most.is_none_or(|most| most <= LARGEST_COUNT && least <= most);
        Some(valid.then_some(most.unwrap_or(least)))
    }

    /// A number without a leading zero; a large one becomes some number that is too large.
    fn digits(&mut self) -> Option<u32> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        self.rest = rest;
        Some(digits.parse().unwrap_or(u32::MAX))
    }

    /// `(?:…`, `(?i)`, `(?i:…`, `(?P<name>…` or `(?<name>…`.
    fn special_group(&mut self) -> Result<()> {
        let start = self.rest;
        let named = ["(?P<", "(?<"].iter().any(|opening| self.eat(opening));
        if named {
            let Some((name, rest)) = self.rest.split_once('>') else {
                return Err(error("invalid named capture", start));
            };
            self.rest = rest;
            let valid = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !valid {
                return Err(error("invalid named capture", self.since(start)));
            }
            // Nothing is captured, so names may occur twice, as in Go.
            self.out.push_str("(?:");
            self.groups.push(Group::default());
            return Ok(());
        }
        self.eat("(?");
        let (mut negative, mut flagged) = (false, false);
        loop {
            match self.next() {
                Some('i' | 'm' | 's' | 'U') => flagged = true,
                Some('-') if !negative => (negative, flagged) = (true, false),
                Some(end @ (':' | ')')) if flagged || !negative => {
                    let written = self.since(start);
                    // The engine does not support `(?)`.
                    if written != "(?)" {
                        self.out.push_str(written);
                    }
                    if end == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => {
                    let written = self.since(start);
                    return Err(error("invalid or unsupported Perl syntax", written));
                }
            }
        }
    }

    /// A backslash outside a class.
    fn escape(&mut self) -> Result<()> {
        let start = self.rest;
        for (written, meant) in [
            ("\\A", "\\A"),
            ("\\z", "\\z"),
            ("\\b", "(?-u:\\b)"),
            ("\\B", "\\B"),
        ] {
            if self.eat(written) {
                self.out.push_str(meant);
                self.one(1);
                return Ok(());
            }
        }
        if self.eat("\\C") {
            return Err(error("invalid escape sequence", self.since(start)));
        }
        if self.eat("\\Q") {
            let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
            self.rest = rest;
            text.chars().for_each(|character| self.literal(character));
            return Ok(());
        }
        if let Some(class) = self.shared_class()? {
            self.out.push('[');
            self.out.push_str(&class);
            self.out.push(']');
            self.one(1);
            return Ok(());
        }
        let character = self.escaped()?;
        self.literal(character);
        Ok(())
    }

    /// `\d` and the like, or `\pL`, in the form for a class; `None` when there is none here.
    fn shared_class(&mut self) -> Result<Option<String>> {
        for (written, meant) in [
            ("\\d", "0-9"),
            ("\\D", "[^0-9]"),
            ("\\s", "\\t\\n\\x0c\\r "),
            ("\\S", "[^\\t\\n\\x0c\\r ]"),
            ("\\w", "0-9A-Za-z_"),
            ("\\W", "[^0-9A-Za-z_]"),
        ] {
            if self.eat(written) {
                return Ok(Some(meant.to_owned()));
            }
        }
        let start = self.rest;
        let mut negative = match () {
            () if self.eat("\\p") => false,
            () if self.eat("\\P") => true,
            () => return Ok(None),
        };
        let range_error = |at: &str| Err(error("invalid character class range", at));
        let name = if self.eat("{") {
            let Some((name, rest)) = self.rest.split_once('}') else {
                return range_error(start);
            };
            self.rest = rest;
            match name.strip_prefix('^') {
                Some(name) => {
                    negative = !negative;
                    name
                }
                None => name,
            }
        } else {
            let name = self.rest;
            self.next();
            self.since(name)
        };
        let class = format!("\\{}{{{name}}}", if negative { 'P' } else { 'p' });
        let proper = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !proper || Regex::new(&class).is_err() {
            return range_error(self.since(start));
        }
        Ok(Some(class))
    }

    /// The character of an escape sequence.
    fn escaped(&mut self) -> Result<char> {
        let start = self.rest;
        self.next();
        let Some(next) = self.next() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        let found = match next {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            // One digit alone would be a back reference.
            '1'..='7' if !self.rest.starts_with(|c: char| ('0'..='7').contains(&c)) => None,
            '0'..='7' => {
                let mut code = u32::from(next) - u32::from('0');
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    self.next();
                    code = code * 8 + digit;
                }
                char::from_u32(code)
            }
            'x' => self.hexadecimal(),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => Some(other),
            _ => None,
        };
        found.ok_or_else(|| error("invalid escape sequence", self.since(start)))
    }

    fn hexadecimal(&mut self) -> Option<char> {
        if self.eat("{") {
            let mut code: u32 = 0;
            let mut digits = 0;
            loop {
                match self.next()? {
                    '}' if digits > 0 => return char::from_u32(code),
                    digit => {
                        code = code.checked_mul(16)?.checked_add(digit.to_digit(16)?)?;
                        digits += 1;
                    }
                }
            }
        }
        let high = self.next()?.to_digit(16)?;
        let low = self.next()?.to_digit(16)?;
        char::from_u32(high * 16 + low)
    }

    /// `[…]`.
    fn class(&mut self) -> Result<()> {
        let start = self.rest;
        self.next();
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if let Some(inner) = self.rest.strip_prefix("[:")
                && let Some((name, rest)) = inner.split_once(":]")
            {
                let here = self.rest;
                self.rest = rest;
                if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(error("invalid character class range", self.since(here)));
                }
                self.out.push_str(self.since(here));
                continue;
            }
            if let Some(class) = self.shared_class()? {
                self.out.push_str(&class);
                continue;
            }
            let here = self.rest;
            let low = self.class_character(start)?;
            let mut high = low;
            if self.rest.len() > 1 && self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                high = self.class_character(start)?;
                if high < low {
                    return Err(error("invalid character class range", self.since(here)));
                }
            }
            for (character, before) in [(low, ""), (high, "-")] {
                if before.is_empty() || high > low {
                    self.out
                        .push_str(&format!("{before}\\x{{{:x}}}", u32::from(character)));
                }
            }
        }
        self.next();
        self.out.push(']');
        self.one(1);
        Ok(())
    }

    fn class_character(&mut self, class: &'a str) -> Result<char> {
        match self.peek() {
            None => Err(error("missing closing ]", class)),
            Some('\\') => self.escaped(),
            Some(character) => {
                self.next();
                Ok(character)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of kube-apiserver 1.36, besides those in the conformance record.
    #[test]
    fn what_go_cannot_read_is_refused_in_its_words() {
        let cases = [
            ("(", "missing closing ): `(`"),
            ("a)b", "unexpected ): `a)b`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("+?", "missing argument to repetition operator: `+?`"),
            ("a*?+", "invalid nested repetition operator: `*?+`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("x[b-a]", "invalid character class range: `b-a`"),
            ("x[^a", "missing closing ]: `[^a`"),
            ("(?P<a b>c)", "invalid named capture: `(?P<a b>`"),
            ("(?i-:a)", "invalid or unsupported Perl syntax: `(?i-:`"),
            ("(?", "invalid or unsupported Perl syntax: `(?`"),
            (
                "\\p{Nothing}",
                "invalid character class range: `\\p{Nothing}`",
            ),
            ("[\\q]", "invalid escape sequence: `\\q`"),
            ("\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, expected) in cases {
            let expected = format!("error parsing regexp: {expected}");
            assert_eq!(Pattern::error(pattern), Some(expected), "{pattern}");
        }
    }

    #[test]
    fn what_it_can_read_means_what_it_means_there() {
        let cases = [
            ("^\\d+$", "12", true),
            ("^\\d+$", "١٢", false),
            ("^\\w$", "é", false),
            ("^[\\w-]+$", "a-b_1", true),
            ("^[\\D]$", "x", true),
            ("^[^\\s]$", "\u{b}", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{$", "a{", true),
            ("^{2}$", "", true),
            ("^[[a]$", "[", true),
            ("^[a&&b]+$", "a&b", true),
            ("^[a~~b]+$", "a~b", true),
            ("^[]a]+$", "]a", true),
            ("^[a-]+$", "a-", true),
            ("^[[:alpha:][:digit:]]+$", "a1", true),
            ("^[[:^alpha:]]$", "a", false),
            ("^\\Qa.b\\E+$", "a.bb", true),
            ("^\\x41\\x{42}\\103$", "ABC", true),
            ("^\\p{Greek}\\P{^Lu}\\pL$", "αAb", true),
            ("^(?P<n>a)(?<n>b)$", "ab", true),
            ("(?i)^AB(?-i:c)$", "abc", true),
            ("(?i)^AB(?-i:c)$", "abC", false),
            ("^(a|b*?)+x$", "abx", true),
            ("^a{2,3}$", "aaaa", false),
            ("\\bx\\b", "éx", true),
            ("(?s)^a.b$", "a\nb", true),
            ("^a.b$", "a\nb", false),
            ("", "anything", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Pattern::error(pattern), None, "{pattern}");
            let translated = translate(pattern).unwrap();
            assert!(Regex::new(&translated).is_ok(), "{pattern}: {translated}");
            assert_eq!(
                Pattern::new(pattern).matches(text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_go_can_read_the_engine_can_read_too(pattern in "[a-c(){}*+?|^$.\\[\\]\\\\0-2,:?<>PdwsbpLiQE-]{0,12}") {
            if let Ok(translated) = translate(&pattern) {
                proptest::prop_assert!(Regex::new(&translated).is_ok(), "{} {}", pattern, translated);
            }
        }
    }
}
