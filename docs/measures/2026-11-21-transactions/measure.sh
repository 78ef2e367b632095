#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER` from the workspace, files go into FOLDER.
set -eu
folder=$1
mkdir -p "$folder"
seatrial() { "${CARGO_TARGET_DIR:-target}/release/seatrial" "$@"; }
cargo build --quiet --release --bin seatrial

# measure NAME OPERATIONS RUNS OPTIONS...: a file, and so many judgements of it.
measure() {
  local name=$1 operations=$2 runs=$3 file="$folder/$1.sea"
  shift 3
  [ -f "$file" ] || seatrial generate list-append --ops "$operations" "$@" --quiet --out "$file"
  echo "== $name"
  for _ in $(seq "$runs"); do
    { seatrial check --checker list-append --verbose --quiet "$file" 2>&1 || true; } | grep -o '[0-9.]* s, .*'
  done
}

measure 100000 200000 5
measure 1000000 2000000 5
measure clients-1000 2000000 5 --concurrency 1000 --info 0
measure clients-1000-info 2000000 5 --concurrency 1000 --info 0.05
measure few-anomalies 2000000 5 --anomaly G-single,G1c,G2-item --anomaly-rate 0.00001
measure many-anomalies 2000000 5 --anomaly G-single-process,stale-read,lost-write,G2-item,G1c --anomaly-rate 0.02
measure read-uncommitted 200000 5 --isolation read-uncommitted
measure 10000000 20000000 1
