//! One file a verb.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod client_findings;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod init_file;
pub(crate) mod man;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod prove;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod sql_schedule;
pub(crate) mod test;
