#!/usr/bin/env bash
# Brute force against the checkers: docs/measures/2026-11-22-truth/measure.sh OUT
# Writes the tables of each part to OUT, with the wall and processor time of each (`time`).
set -eu
out=$1
mkdir -p "$out"
cd "$(dirname "$0")/../../.."
cargo build --quiet --release --bin seatrial
cargo build --quiet --release --package seatrial-truth
truth=${CARGO_TARGET_DIR:-target}/release/seatrial-truth
part() {
  local name=$1
  shift
  { time "$truth" "$@" >"$out/$name.md" 2>"$out/$name.err"; } 2>"$out/$name.time" || echo "$name: disagreements"
}
part models --histories "${ALL_MODELS:-50000}" --seed 1 --topic lists,registers
part million --histories "${SAMPLED:-500000}" --seed 2 --models 4 --topic lists,registers
part forged --histories "${FORGED:-100000}" --seed 1 --topic forged-lists,forged-registers
part routes --histories "${ROUTES:-40000}" --seed 1 --topic routes-lists,routes-registers
part data --histories "${DATA:-1000000}" --seed 1 --topic data
part samples --topic samples
