//! The binary `seatrial`, with the bundled suites.

use std::process::ExitCode;

fn main() -> ExitCode {
    seatrial::main(&[
        &seatrial_kv_suite::SUITE,
        &seatrial_volume_suite::SUITE,
        &seatrial_maelstrom::SUITE,
    ])
}
