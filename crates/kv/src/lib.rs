//! A key-value store whose log is an archive.
