//! A disk that loses power: what may be left of the files of a directory at any point of a recorded run.
//!
//! Between two syncs of a file each of its pages is left as it was at any time since the first of them: a page that was not
//! written is zeroes where the file has grown over it. The length is one of any time, too. Between two syncs of the
//! directory each creation, rename and removal is done or not, whatever the others are.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// What is done to one file.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Opened; created if it is absent.
    Open,
    /// Written at its end.
    Append(Vec<u8>),
    /// Its length is set.
    Cut(u64),
    Sync,
    Rename(String),
    Remove,
    /// The directory is synced; it is the step of no file.
    SyncDirectory,
}

/// A step, and the name of its file.
pub(crate) type Recorded = (String, Step);

static RECORDS: Mutex<BTreeMap<PathBuf, Vec<Recorded>>> = Mutex::new(BTreeMap::new());

/// Records the steps in an empty directory from now on.
pub(crate) fn record(directory: &Path) {
    RECORDS.lock().insert(directory.to_owned(), Vec::new());
}

/// The number of recorded steps.
pub(crate) fn count(directory: &Path) -> usize {
    RECORDS.lock().get(directory).map_or(0, Vec::len)
}

/// Ends the record of a directory, and returns it.
pub(crate) fn take(directory: &Path) -> Vec<Recorded> {
    RECORDS.lock().remove(directory).unwrap_or_default()
}

/// The operations that fail on the files of a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failing {
    /// The number of bytes that are written before writes fail; `None` for any number.
    pub(crate) room: Option<usize>,
    pub(crate) sync: bool,
    pub(crate) cut: bool,
}

static FAILING: Mutex<BTreeMap<PathBuf, Failing>> = Mutex::new(BTreeMap::new());

/// Makes operations fail in a directory from now on; none with `None`.
pub(crate) fn fail(directory: &Path, failing: Option<Failing>) {
    let mut all = FAILING.lock();
    all.remove(directory);
    all.extend(failing.map(|failing| (directory.to_owned(), failing)));
}

pub(super) fn check(path: &Path, fails: impl FnOnce(&Failing) -> bool) -> io::Result<()> {
    let all = FAILING.lock();
    let failing = path.parent().and_then(|directory| all.get(directory));
    match failing.is_some_and(fails) {
        true => Err(io::Error::other("the disk fails")),
        false => Ok(()),
    }
}

/// The bytes that are written at once.
pub(super) fn room<'a>(path: &Path, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
    let mut all = FAILING.lock();
    let failing = path.parent().and_then(|directory| all.get_mut(directory));
    let Some(room) = failing.and_then(|failing| failing.room.as_mut()) else {
        return Ok(bytes);
    };
    if *room == 0 && !bytes.is_empty() {
        return Err(io::Error::from(io::ErrorKind::StorageFull));
    }
    let count = bytes.len().min(*room);
    *room -= count;
    Ok(&bytes[..count])
}

pub(super) fn note(path: &Path, step: Step) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    if let Some(steps) = RECORDS.lock().get_mut(directory) {
        steps.push((name.to_string_lossy().into_owned(), step));
    }
}

pub(super) fn renamed(from: &Path, to: &Path) {
    let name = to.file_name().unwrap_or_default();
    note(from, Step::Rename(name.to_string_lossy().into_owned()));
}

pub(super) fn synced_directory(directory: &Path) {
    note(&directory.join("-"), Step::SyncDirectory);
}

/// The files of a directory while steps are done to them.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    files: Vec<Content>,
    /// Files by their names now.
    names: BTreeMap<String, usize>,
    /// The names at the last sync of the directory, and what has changed since.
    durable: BTreeMap<String, usize>,
    changes: Vec<Change>,
}

/// The content of a file.
#[derive(Clone, Default)]
struct Content {
    /// At the last sync, and after each step since.
    since: Vec<Vec<u8>>,
}

#[derive(Clone)]
enum Change {
    Set(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

// === impl Disk ===

impl Disk {
    pub(crate) fn apply(&mut self, (name, step): &Recorded) {
        let file = self.names.get(name).copied();
        match (step, file) {
            (Step::SyncDirectory, _) => {
                self.durable.clone_from(&self.names);
                self.changes.clear();
            }
            (Step::Open, None) => {
                let file = self.files.len();
                self.files.push(Content {
                    since: vec![Vec::new()],
                });
                self.names.insert(name.clone(), file);
                self.changes.push(Change::Set(name.clone(), file));
            }
            (Step::Open, Some(_)) => {}
            (Step::Append(bytes), Some(file)) => {
                self.files[file].change(|content| content.extend(bytes));
            }
            (Step::Cut(length), Some(file)) => {
                self.files[file].change(|content| content.resize(*length as usize, 0));
            }
            (Step::Sync, Some(file)) => {
                let since = &mut self.files[file].since;
                since.drain(..since.len() - 1);
            }
            (Step::Rename(to), Some(file)) => {
                self.names.remove(name);
                self.names.insert(to.clone(), file);
                let change = Change::Rename(name.clone(), to.clone(), file);
                self.changes.push(change);
            }
            (Step::Remove, Some(_)) => {
                self.names.remove(name);
                self.changes.push(Change::Remove(name.clone()));
            }
            // It was removed while it was open.
            (Step::Sync, None) => {}
            (step, None) => panic!("{step:?} of {name}, which is absent"),
        }
    }

    /// The files that one loss of power leaves.
    pub(crate) fn lose_power(&self, random: &mut fastrand::Rng) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.durable.clone();
        for change in &self.changes {
            if random.bool() {
                continue;
            }
            match change {
                Change::Set(name, file) => {
                    names.insert(name.clone(), *file);
                }
                Change::Rename(from, to, file) => {
                    names.remove(from);
                    names.insert(to.clone(), *file);
                }
                Change::Remove(name) => {
                    names.remove(name);
                }
            }
        }
        let page = *random.choice(&[16, 64, 512, 4096]).unwrap_or(&4096);
        let files = names.into_iter();
        files
            .map(|(name, file)| (name, self.files[file].left(page, random)))
            .collect()
    }

    /// The files that a kill of the process leaves.
    pub(crate) fn kill(&self) -> BTreeMap<String, Vec<u8>> {
        let files = self.names.iter();
        files
            .map(|(name, file)| (name.clone(), self.files[*file].now().clone()))
            .collect()
    }
}

// === impl Content ===

impl Content {
    fn now(&self) -> &Vec<u8> {
        self.since.last().expect("it has a state")
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.now().clone();
        change(&mut content);
        self.since.push(content);
    }

    fn left(&self, page: usize, random: &mut fastrand::Rng) -> Vec<u8> {
        // Often all or nothing, so that each is seen alone.
        let kind = random.u8(..4);
        let any = |random: &mut fastrand::Rng| match kind {
            0 => self.now(),
            1 => &self.since[0],
            _ => &self.since[random.usize(..self.since.len())],
        };
        let length = match kind {
            // The length is durable, and some pages are not.
            2 => self.now().len(),
            _ => any(random).len(),
        };
        let mut left = vec![0; length];
        for (at, page_left) in left.chunks_mut(page).enumerate() {
            let from = any(random).get(at * page..).unwrap_or_default();
            let count = from.len().min(page_left.len());
            page_left[..count].copy_from_slice(&from[..count]);
        }
        left
    }
}
