//! The text form of label selectors.

use std::collections::BTreeSet;

use super::Error;
use super::labels::{Operator, Requirement, Written};
use crate::field::quote;
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Bad,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

/// `in` and `notin` are keywords only right after a key; elsewhere they are values.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    AfterKey,
    Elsewhere,
}

pub(super) struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    pub(super) fn new(text: &str) -> Self {
        Self {
            tokens: scan(text),
            position: 0,
        }
    }

    fn look(&self, place: Place) -> (Token, &str) {
        let Some((token, text)) = self.tokens.get(self.position) else {
            return (Token::End, "");
        };
        match token {
            Token::In | Token::NotIn if place == Place::Elsewhere => (Token::Identifier, text),
            token => (*token, text),
        }
    }

    fn take(&mut self, place: Place) -> (Token, String) {
        let (token, text) = self.look(place);
        let taken = (token, text.to_owned());
        self.position += 1;
        taken
    }

    pub(super) fn parse(mut self) -> Result<Vec<Requirement>, Error> {
        let mut requirements = Vec::new();
        loop {
            match self.look(Place::Elsewhere) {
                (Token::Identifier | Token::Not, _) => {
                    let requirement = self.requirement().map_err(|Error(text)| {
                        Error(format!("unable to parse requirement: {text}"))
                    })?;
                    requirements.push(requirement);
                    match self.take(Place::Elsewhere) {
                        (Token::End, _) => return Ok(sorted(requirements)),
                        (Token::Comma, _) => match self.look(Place::Elsewhere) {
                            (Token::Identifier | Token::Not, _) => {}
                            (_, found) => {
                                return Err(Error(format!(
                                    "found '{found}', expected: identifier after ','"
                                )));
                            }
                        },
                        (_, found) => {
                            return Err(Error(format!(
                                "found '{found}', expected: ',' or 'end of string'"
                            )));
                        }
                    }
                }
                (Token::End, _) => return Ok(sorted(requirements)),
                (_, found) => {
                    return Err(Error(format!(
                        "found '{found}', expected: !, identifier, or 'end of string'"
                    )));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let (mut token, mut key) = self.take(Place::Elsewhere);
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.take(Place::Elsewhere);
        }
        if token != Token::Identifier {
            return Err(Error(format!("found '{key}', expected: identifier")));
        }
        let wrong = names::qualified_name(&key);
        if !wrong.is_empty() {
            return Err(Error(format!(
                "<nil>: Invalid value: {}: {}",
                quote(&key),
                wrong.join("; ")
            )));
        }
        let ends = matches!(self.look(Place::Elsewhere).0, Token::End | Token::Comma);
        if absent || ends {
            let operator = if absent {
                Operator::DoesNotExist
            } else {
                Operator::Exists
            };
            return Requirement::new(&key, operator, BTreeSet::new(), Written::Set);
        }
        let (token, found) = self.take(Place::AfterKey);
        let (operator, written) = match token {
            Token::In => (Operator::In, Written::Set),
            Token::NotIn => (Operator::NotIn, Written::Set),
            Token::Equals | Token::DoubleEquals => (Operator::In, Written::Exact),
            Token::NotEquals => (Operator::NotIn, Written::Exact),
            Token::Greater => (Operator::GreaterThan, Written::Exact),
            Token::Less => (Operator::LessThan, Written::Exact),
            _ => {
                return Err(Error(format!(
                    "found '{found}', expected: in, notin, =, ==, !=, gt, lt"
                )));
            }
        };
        let values = match written {
            Written::Set => self.values()?,
            Written::Exact => self.exact_value()?,
        };
        Requirement::new(&key, operator, values, written)
    }

    fn values(&mut self) -> Result<BTreeSet<String>, Error> {
        let (token, found) = self.take(Place::Elsewhere);
        if token != Token::Open {
            return Err(Error(format!("found '{found}' expected: '('")));
        }
        let (token, found) = self.look(Place::Elsewhere);
        let found = found.to_owned();
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                if self.take(Place::Elsewhere).0 != Token::Close {
                    return Err(Error(format!("found '{found}', expected: ')'")));
                }
                Ok(values)
            }
            // `()` is the set of the empty value.
            Token::Close => {
                self.take(Place::Elsewhere);
                Ok([String::new()].into())
            }
            _ => Err(Error(format!(
                "found '{found}', expected: ',', ')' or identifier"
            ))),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, Error> {
        let mut values = BTreeSet::new();
        loop {
            match self.take(Place::Elsewhere) {
                (Token::Identifier, value) => {
                    values.insert(value);
                    match self.look(Place::Elsewhere) {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, found) => {
                            return Err(Error(format!("found '{found}', expected: ',' or ')'")));
                        }
                    }
                }
                (Token::Comma, _) => {
                    // An empty item between commas is the empty value: `(,a)`, `(a,)`, `(a,,b)`.
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.look(Place::Elsewhere).0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take(Place::Elsewhere);
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => {
                    return Err(Error(format!(
                        "found '{found}', expected: ',', or identifier"
                    )));
                }
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, Error> {
        if matches!(self.look(Place::Elsewhere).0, Token::End | Token::Comma) {
            return Ok([String::new()].into());
        }
        match self.take(Place::Elsewhere) {
            (Token::Identifier, value) => Ok([value].into()),
            (_, found) => Err(Error(format!("found '{found}', expected: identifier"))),
        }
    }
}

fn sorted(mut requirements: Vec<Requirement>) -> Vec<Requirement> {
    requirements.sort_by(|left, right| left.key.cmp(&right.key));
    requirements
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let special = |character: char| "=!(),><".contains(character);
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            return tokens;
        };
        if special(first) {
            // The longest run of special characters that is a token; `!` and `=` may grow by one.
            let length = rest
                .find(|character| !special(character))
                .unwrap_or(rest.len());
            let two = if length >= 2 {
                symbol(&rest[..2])
            } else {
                None
            };
            let (token, taken) = match (two, symbol(&rest[..1])) {
                (Some(token), _) => (token, 2),
                (None, Some(token)) => (token, 1),
                (None, None) => (Token::Bad, 1),
            };
            tokens.push((token, rest[..taken].to_owned()));
            rest = &rest[taken..];
        } else {
            let blank = |character: char| " \t\r\n".contains(character);
            let length = rest
                .find(|character| special(character) || blank(character))
                .unwrap_or(rest.len());
            let word = &rest[..length];
            let token = match word {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            tokens.push((token, word.to_owned()));
            rest = &rest[length..];
        }
    }
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}
