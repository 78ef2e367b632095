#!/bin/sh
# Writes raw.csv: all checkers of all workloads at 10^5 and 10^6 operations.
cargo bench -p seatrial-runner --bench data_types > raw.csv
