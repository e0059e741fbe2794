//! Sequences of writes, and what they leave: the cases of structured-merge-diff and of the field manager.

mod conversions;
mod deduced;
mod duplicates;
mod laws;
mod leaves;
mod lists;
mod managers;
mod nested;
mod overrides;
mod scale;
mod schemas;
mod upstream;
mod world;
