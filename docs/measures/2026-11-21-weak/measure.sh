#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER` from the workspace, files go into FOLDER.
set -eu
folder=$1
mkdir -p "$folder"
target=${CARGO_TARGET_DIR:-target}/release
cargo build --quiet --release -p seatrial

# family NAME EVENTS SESSIONS KEYS OPTIONS...: a file of family W: 8 events to a transaction on the mean.
family() {
  local file="$folder/$1" events=$2 sessions=$3 keys=$4
  shift 4
  [ -f "$file" ] || "$target/seatrial" generate rw-register --ops $((events / 4)) --concurrency "$sessions" --keys "$keys" \
    --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths --fail 0 --info 0 --quiet "$@" \
    --out "$file"
}

# judge NAME MODEL RUNS: processor seconds (user, system) and peak KB of the whole process.
judge() {
  echo "== $1 $2"
  for _ in $(seq "$3"); do
    /usr/bin/time -q -f '%U + %S s, %M KB' "$target/seatrial" check --quiet --checker isolation --model "$2" \
      --format "${1##*.}" "$folder/$1" 2>&1 >/dev/null | tail -1
  done
}

broken=(--anomaly non-monotonic-read --anomaly-at 0.9)
family w-1e6.plume 1000000 50 20000
family w-1e6.dbcop 1000000 50 20000
family w-1e6-broken.plume 1000000 50 20000 "${broken[@]}"
family w-3e6.plume 3000000 50 60000
family w-1e7.plume 10000000 50 200000
family w-1e7-broken.plume 10000000 50 200000 "${broken[@]}"
family w-1e5-318.plume 100000 318 2000
family w-1e5-318-broken.plume 100000 318 2000 "${broken[@]}"
for model in axiomatic-read-committed axiomatic-read-atomic causal; do
  for file in w-1e6.plume w-1e6.dbcop w-1e6-broken.plume w-1e5-318.plume w-1e5-318-broken.plume; do
    judge "$file" "$model" 5
  done
  for file in w-1e7.plume w-1e7-broken.plume; do judge "$file" "$model" 2; done
done
judge w-3e6.plume causal 3
for model in read-your-writes monotonic-reads monotonic-writes writes-follow-reads pram; do judge w-1e6.plume "$model" 3; done
