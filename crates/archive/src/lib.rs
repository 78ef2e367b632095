//! The append-only checksummed log.
