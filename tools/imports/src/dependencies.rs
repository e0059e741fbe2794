//! Dependencies that a crate declares and does not use.
//!
//! A dependency of the product is used where its code without tests names it; one of tests where any file of the crate does,
//! also in comments and guides, which have doc tests.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::tree::{self, Sources, Tree};
use crate::workspace::{Crate, Dependency};

/// Dependencies that are declared for another reason than their names: lines `CRATE DEPENDENCY # REASON`.
#[derive(Debug, Default)]
pub(crate) struct Exceptions(Vec<(String, String)>);

/// A line of [`Exceptions`] that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0}: expected a crate, a dependency and a reason after `#`")]
pub(crate) struct Error(usize);

// === impl Exceptions ===

impl Exceptions {
    /// Reads the lines; one that begins with `#` is a comment.
    ///
    /// # Errors
    /// A line of another form.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let exceptions = lines.map(|(at, line)| {
            let (content, reason) = line.split_once('#').ok_or(Error(at + 1))?;
            let words: Vec<&str> = content.split_whitespace().collect();
            match words[..] {
                [name, dependency] if !reason.trim().is_empty() => {
                    Ok((name.to_owned(), dependency.to_owned()))
                }
                _ => Err(Error(at + 1)),
            }
        });
        exceptions.collect::<Result<_, _>>().map(Self)
    }

    /// What is wrong with the dependencies of a crate, and with the exceptions for it, given the unused ones.
    pub(crate) fn check(&self, name: &str, unused: &[&Dependency]) -> Vec<String> {
        let exceptions = self.0.iter().filter(|(of, _)| of == name);
        let exceptions: Vec<&str> = exceptions.map(|(_, name)| name.as_str()).collect();
        let wrong = unused
            .iter()
            .filter(|found| !exceptions.contains(&found.name.as_str()));
        let wrong = wrong.map(|found| {
            let place = if found.dev { "" } else { " outside of tests" };
            format!(
                "{name} does not use its dependency {}{place}: remove or move it, or name the reason in \
                 tools/imports/unused",
                found.name
            )
        });
        let idle = exceptions
            .iter()
            .filter(|name| unused.iter().all(|found| found.name != **name));
        let idle = idle.map(|dependency| {
            format!("{name} uses {dependency}, or does not have it: remove its line in tools/imports/unused")
        });
        wrong.chain(idle).collect()
    }

    /// Crates that have an exception and do not exist.
    pub(crate) fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !known.contains(name))
    }
}

/// The unused dependencies of a crate. `files` has the text of all of its files.
///
/// # Errors
/// A source that cannot be read.
pub(crate) fn unused<'a>(
    member: &'a Crate,
    sources: &dyn Sources,
    files: &[String],
) -> Result<Vec<&'a Dependency>, tree::Error> {
    let mut used = BTreeSet::new();
    for root in &member.roots {
        for module in Tree::load(root, sources)?.modules {
            let body = module.body;
            used.extend(body.names.into_keys());
            let paths = body.uses.into_iter().map(|import| import.path);
            let mut firsts = paths.filter_map(|path| {
                let mut segments = path.segments.into_iter();
                segments.find(|segment| !segment.is_empty())
            });
            used.extend(&mut firsts);
        }
    }
    let of_product: Vec<&str> = member
        .dependencies
        .iter()
        .filter(|one| !one.dev)
        .map(|one| one.name.as_str())
        .collect();
    let unused = member.dependencies.iter().filter(|dependency| {
        let name = dependency.name.replace('-', "_");
        match dependency.dev {
            // Features for tests.
            true if of_product.contains(&dependency.name.as_str()) => false,
            true => !files.iter().any(|text| names(text, &name)),
            false => !used.contains(&name),
        }
    });
    Ok(unused.collect())
}

/// Whether `text` has the word `name`.
fn names(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// The text of the sources and pages of a crate: those below the folders of its targets, its guide and its README.
///
/// # Errors
/// A file or a folder that cannot be read.
pub(crate) fn files(folder: &Path, member: &Crate) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    let targets = member.roots.iter().chain(&member.tests);
    // A target outside of the folder is another crate's.
    let targets = targets.filter_map(|path| path.strip_prefix(folder).ok());
    let tops = targets.filter_map(|path| path.components().next());
    let mut tops: BTreeSet<_> = tops.map(|top| folder.join(top)).collect();
    tops.extend([folder.join("guide"), folder.join("README.md")]);
    for top in tops.iter().filter(|top| top.exists()) {
        read(top, &mut texts)?;
    }
    Ok(texts)
}

fn read(path: &Path, texts: &mut Vec<String>) -> io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            read(&entry?.path(), texts)?;
        }
    } else if path
        .extension()
        .is_some_and(|kind| kind == "rs" || kind == "md")
    {
        texts.push(std::fs::read_to_string(path)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct One(&'static str);

    impl Sources for One {
        fn read(&self, path: &Path) -> io::Result<String> {
            match path.ends_with("src/lib.rs") {
                true => Ok(self.0.to_owned()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }
    }

    fn crate_with(dependencies: &[(&str, bool)]) -> Crate {
        let dependencies = dependencies.iter().map(|(name, dev)| Dependency {
            name: (*name).to_owned(),
            dev: *dev,
        });
        Crate {
            name: "a".to_owned(),
            folder: PathBuf::from("/a"),
            roots: vec![PathBuf::from("/a/src/lib.rs")],
            dependencies: dependencies.collect(),
            tests: Vec::new(),
        }
    }

    #[test]
    fn a_dependency_is_used_where_the_product_names_it_and_one_of_tests_anywhere() {
        let text = "use used_one::A;\n#[derive(inattribute::Error)]\nstruct B;\nfn c() { path::d(); }\n\
            #[cfg(test)]\nmod tests { use in_tests::E; }\n";
        let files = [
            text.to_owned(),
            "//! use in_a_guide::F; not_more".to_owned(),
        ];
        let cases = [
            ("used-one", false, false),
            ("inattribute", false, false),
            ("path", false, false),
            ("in-tests", false, true),
            ("in-a-guide", false, true),
            ("in-tests", true, false),
            ("in-a-guide", true, false),
            ("more", true, true),
            ("none", false, true),
        ];
        for (name, dev, expected) in cases {
            let member = crate_with(&[(name, dev)]);
            let found = unused(&member, &One(text), &files).unwrap();
            assert_eq!(!found.is_empty(), expected, "{name} {dev}");
        }
        let both = crate_with(&[("in-tests", false), ("in-tests", true)]);
        let found = unused(&both, &One(text), &files).unwrap();
        assert_eq!(found.len(), 1, "the second adds features for tests");
    }

    #[test]
    fn an_exception_has_a_reason_and_is_needed() {
        let exceptions =
            Exceptions::parse("# why\n\na b # for its features\na c # of old\n").unwrap();
        let member = crate_with(&[("b", false), ("d", true), ("e", false)]);
        let unused: Vec<_> = member.dependencies.iter().collect();
        let wrong = exceptions.check("a", &unused);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("a does not use its dependency d: "));
        assert!(wrong[1].starts_with("a does not use its dependency e outside of tests: "));
        assert!(wrong[2].starts_with("a uses c, or does not have it"));
        assert_eq!(exceptions.unknown(&["b"]).count(), 2);
        for text in ["a b", "a b #", "a # reason", "a b c # reason"] {
            assert_eq!(Exceptions::parse(text).unwrap_err(), Error(1), "{text}");
        }
    }
}
