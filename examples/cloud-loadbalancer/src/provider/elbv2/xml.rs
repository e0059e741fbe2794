//! The answers of the API: elements with text, and lists whose items are elements named `member`.

use std::str::FromStr;

use roxmltree::{Document, Node, ParsingOptions};

use super::wire::unreadable;
use crate::provider::Error;

/// The most nodes of an answer. A page of 400 load balancers has less than a tenth of it.
const MOST_NODES: u32 = 500_000;

/// An element of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a>(Node<'a, 'a>);

/// Parses `text` and reads its root element. A document with a DTD is refused.
pub(super) fn read<T>(
    text: &str,
    read: impl FnOnce(Element<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let options = ParsingOptions {
        nodes_limit: MOST_NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options);
    let document = document.map_err(|error| unreadable("answer", error))?;
    read(Element(document.root_element()))
}

// === impl Element ===

impl<'a> Element<'a> {
    /// The name of the element, without its namespace.
    pub(super) fn name(self) -> &'a str {
        self.0.tag_name().name()
    }

    /// The first child of this name.
    pub(super) fn child(self, name: &str) -> Option<Self> {
        let mut children = self.0.children();
        children.find(|one| one.tag_name().name() == name).map(Self)
    }

    /// The child with the result of an action, which each answer wraps once.
    pub(super) fn result(self) -> Result<Self, Error> {
        let name = self.name().strip_suffix("Response").unwrap_or_default();
        let result = self.child(&format!("{name}Result"));
        result.ok_or_else(|| unreadable("answer", self.name()))
    }

    /// The items of the list of this name; none if there is no list.
    pub(super) fn members(self, name: &str) -> impl Iterator<Item = Self> + use<'a> {
        let list = self.child(name).into_iter();
        let items = list.flat_map(|list| list.0.children());
        items
            .filter(|one| one.tag_name().name() == "member")
            .map(Self)
    }

    /// The text of the child of this name; empty if there is none.
    pub(super) fn text(self, name: &str) -> &'a str {
        let child = self.child(name);
        let text = child.and_then(|child| child.0.text());
        text.unwrap_or_default().trim()
    }

    /// The text of the child of this name, which has to be there.
    pub(super) fn needed(self, name: &str) -> Result<&'a str, Error> {
        match self.text(name) {
            "" => Err(unreadable("answer", format!("there is no {name}"))),
            text => Ok(text),
        }
    }

    /// The value of the child of this name.
    pub(super) fn value<T: FromStr>(self, name: &str) -> Result<T, Error> {
        let text = self.needed(name)?;
        text.parse().map_err(|_| unreadable(name, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"<DescribeTagsResponse xmlns="http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/">
        <DescribeTagsResult><Tags>
            <member><Key>a</Key><Value>1 &amp; 2</Value></member>
            <member><Key>b</Key><Value/></member>
        </Tags></DescribeTagsResult></DescribeTagsResponse>"#;

    #[test]
    fn lists_and_texts_are_read() {
        let tags = read(ANSWER, |root| {
            let members = root.result()?.members("Tags");
            members
                .map(|one| Ok((one.needed("Key")?.to_owned(), one.text("Value").to_owned())))
                .collect::<Result<Vec<_>, Error>>()
        });
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(tags.unwrap(), [tag("a", "1 & 2"), tag("b", "")]);
        let none = read(ANSWER, |root| Ok(root.result()?.members("Others").count()));
        assert_eq!(none, Ok(0));
    }

    #[test]
    fn what_is_not_an_answer_is_an_error() {
        let entities = "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>";
        for text in ["", "bad gateway", "<a>", "<a><b></a>", entities] {
            let error = read(text, |_| Ok(())).unwrap_err();
            assert_eq!(error.code, "Unreadable", "{text}");
        }
        let other = read("<Other/>", |root| root.result().map(|_| ()));
        assert_eq!(other.unwrap_err().code, "Unreadable");
        let short = "<a><Port>80x</Port></a>";
        let port = read(short, |root| root.value::<u16>("Port"));
        assert!(port.unwrap_err().message.contains("80x"));
        assert!(read(short, |root| root.needed("Name").map(drop)).is_err());
    }
}
