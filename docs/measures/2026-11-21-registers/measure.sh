#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER` from the workspace, files go into FOLDER.
set -eu
folder=$1
mkdir -p "$folder"
seatrial() { "${CARGO_TARGET_DIR:-target}/release/seatrial" "$@"; }
[ -n "${NO_BUILD:-}" ] || cargo build --quiet --release --bin seatrial

# file NAME TRANSACTIONS CLIENTS KEYS OPTIONS...: blind writes and reads of so many keys, 8 to a transaction on the mean.
# With 20 clients and 10,000 keys this is family B of the scoreboard.
file() {
  local file="$folder/$1.sea" transactions=$2 clients=$3 keys=$4
  shift 4
  [ -f "$file" ] || seatrial generate rw-register --ops $((2 * transactions)) --concurrency "$clients" --keys "$keys" \
    --distribution uniform --txn-length 1..15 --writes-per-key 65536..65536 --fail 0 "$@" \
    --quiet --out "$file"
}

# judge NAME RUNS OPTIONS...: so many judgements of it.
judge() {
  local file="$folder/$1.sea" runs=$2
  echo "== $*"
  shift 2
  for _ in $(seq "$runs"); do
    { seatrial check --checker rw-register --verbose --quiet "$@" "$file" 2>&1 || true; } | grep -o '[0-9.]* s, .*'
  done
}

for transactions in 1000 8000 32000 1000000; do
  file "b-$transactions" "$transactions" 20 10000 --info 0
  judge "b-$transactions" 5
  judge "b-$transactions" 5 --infer linearizable-keys
  judge "b-$transactions" 5 --infer linearizable-keys,sequential-keys,wfr-keys
done
# The same with an anomaly now and then; 1,000 clients at ten keys; clients that crash.
file b-anomalies 100000 20 10000 --info 0 --anomaly lost-update,G1c,G-single --anomaly-rate 0.0001
judge b-anomalies 3 --infer linearizable-keys
file contended 100000 1000 10 --info 0
judge contended 3 --infer linearizable-keys
file crashes 100000 1000 10 --info 0.05
judge crashes 3 --infer linearizable-keys
# Replicas that lag behind: keys are not linearizable.
file stale 100000 20 10000 --info 0 --isolation serializable
judge stale 3 --infer linearizable-keys
