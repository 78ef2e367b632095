//! Checks Plume's text, from standard input, by a model of the checker `isolation`, straight from the reader into columns:
//! what `seatrial check FILE --checker isolation --model MODEL` does, without the command around it.
//!
//! ```text
//! cargo run --release -p seatrial-isolation --example isolation -- causal < w.txt
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use seatrial_interchange::import::registers::TransactionReader;
use seatrial_interchange::import::{Format, ImportOptions};
use seatrial_isolation::registers::ColumnsBuilder;
use seatrial_isolation::{AxiomaticModel, Isolation};
use std::io;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let model = AxiomaticModel::by_name(&name).ok_or_else(|| {
        let known: Vec<_> = AxiomaticModel::all().map(AxiomaticModel::name).collect();
        format!("there is no model {name:?}; there are {}", known.join(", "))
    })?;
    let (input, options) = (io::stdin().lock(), ImportOptions::default());
    let mut builder = ColumnsBuilder::default();
    let mut reader = TransactionReader::open("standard input", input, Format::Plume, options);
    while reader.advance(&mut builder)? {}
    let verdict = Isolation::new(model).check_gathered(builder.finish());
    println!("{:?} {:?}", verdict.valid, verdict.anomalies);
    println!("{}", verdict.details);
    for finding in verdict.findings {
        println!("\n{}: {}", finding.anomaly, finding.summary);
    }
    Ok(())
}
