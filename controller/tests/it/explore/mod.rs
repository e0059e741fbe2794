//! The explorer, on reconcilers with the bugs that operators have, each in a wrong and a right form. docs/explore.md has the
//! table of them: a test prints the lines of its shape.

mod corpus;
mod kinds;

mod answers;
mod digests;
mod directions;
mod edges;
mod finalizers;
mod guards;
mod leaders;
mod loops;
mod names;
mod progress;
mod recreations;
mod reports;
mod rules;
mod surplus;
mod timers;
mod toggles;
