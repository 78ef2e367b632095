#!/usr/bin/env bash
# Servers under attack: docs/measures/2026-11-22-servers/measure.sh, from anywhere. Prints what README.md tells.
set -eu
cd "$(dirname "$0")/../../.."
cargo test --release --package seatrial --test servers -- --nocapture --test-threads 1 2>&1 |
  grep -E '^(archive|kv|memory|skipped|test )|half messages'
