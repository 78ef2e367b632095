//! The bundled systems as things to test.

pub(crate) mod kv;
