//! Tests of the checkers through their public face.

#[path = "all/corpus.rs"]
mod corpus;
