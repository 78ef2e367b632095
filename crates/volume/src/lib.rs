//! A replicated, encrypted block volume.
