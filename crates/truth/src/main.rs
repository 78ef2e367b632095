//! The program behind `cargo xtask truth`.

use clap::Parser as _;
use seatrial_truth::{TruthOptions, run};
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let is_clean = run(&TruthOptions::parse())?;
    Ok(ExitCode::from(u8::from(!is_clean)))
}
