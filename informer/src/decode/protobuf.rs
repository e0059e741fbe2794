//! Reads the events and lists of protobuf.

use super::budget::Budget;
use super::error::DecodeError;
use super::frame::Frame;
use super::identity::Identity;
use super::list::{Held, ListPage};
use crate::object::{EntryReader, Stored};

/// Reads an event.
pub(super) fn decode_event<S: Stored + ?Sized>(
    _event: &[u8],
    _entries: &EntryReader<S>,
) -> Result<Frame<S>, DecodeError> {
    Err(unread("the watch event"))
}

/// The identity of the object that an event adds or changes.
pub(super) fn changed(_event: &[u8]) -> Option<Identity<'_>> {
    None
}

/// Reads a page of a list.
pub(super) async fn read_list<S: Stored + ?Sized>(
    _body: &[u8],
    _entries: &EntryReader<S>,
    _held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    budget.spend(0).await;
    Err(unread("the list"))
}

/// The token of the next page.
pub(super) fn continue_token(_body: &[u8]) -> Option<String> {
    None
}

fn unread(what: &'static str) -> DecodeError {
    DecodeError {
        what,
        error: "protobuf was not requested".to_owned(),
    }
}
