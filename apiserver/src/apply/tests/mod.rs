//! Sequences of writes, and what they leave: the cases of structured-merge-diff and of the field manager.

mod duplicates;
mod laws;
mod leaves;
mod lists;
mod managers;
mod nested;
mod scale;
mod schemas;
mod world;
