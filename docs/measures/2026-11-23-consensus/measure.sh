#!/usr/bin/env bash
# Ordering speed, then the long runs of the simulator and of the fuzzer. Takes about ten minutes.
set -e
cargo bench -p seatrial-consensus --bench ordering
SEATRIAL_SEEDS=${1:-10000} cargo test -p seatrial-consensus --lib simulator::tests::three_nodes -- --exact --nocapture
SEATRIAL_SEEDS=${2:-1000} cargo test -p seatrial-consensus --lib simulator::tests -- --nocapture
SEATRIAL_CASES=1000000 cargo test -p seatrial-consensus --lib fuzz -- --nocapture
