//! What to do next: pure generators, contexts, the pure interpreter.
