//! A register server (`server`) and everything seatrial needs to test it: how its nodes start and what its clients do
//! (`client`), a workload and a checker of its own (`monotone`), and the suite that names all of it (`suite`).

mod client;
mod monotone;
mod server;
mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    seatrial::main(&[&suite::REGISTERS, &seatrial_kv_suite::SUITE])
}
