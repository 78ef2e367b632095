#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER [TRANSACTIONS...]` from the workspace, files go into FOLDER.
set -eu
folder=$1
shift
counts=${*:-100000 1000000}
mkdir -p "$folder"
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial
program="${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}"

# timed NAME COMMAND...: processor seconds, peak memory and status.
timed() {
  local name=$1
  shift
  /usr/bin/time -f "$name: %U + %S s, %M KiB, status %x" "$@" >"$folder/out.txt" 2>"$folder/err.txt" || true
  grep -h 'KiB' "$folder/err.txt"
}

# proven FILE OPTIONS...: a certificate, and its verification.
proven() {
  local file=$folder/$1
  shift
  rm -f "$folder/certificate.json"
  timed "$(basename "$file") $* --certificate" "$program" check --quiet "$@" --certificate "$folder/certificate.json" "$file"
  [ -f "$folder/certificate.json" ] || { head -1 "$folder/err.txt"; return 0; }
  timed "$(basename "$file") $* --verify ($(stat -c %s "$folder/certificate.json") bytes)" "$program" check --verify "$folder/certificate.json" "$file"
}

# generated NAME WORKLOAD OPTIONS...
generated() {
  local file=$folder/$1
  shift
  [ -f "$file" ] || "$program" generate "$@" --quiet --out "$file"
}

for count in $counts; do
  ops=$((2 * count))
  generated "lists-$count.sea" list-append --ops "$ops"
  proven "lists-$count.sea" --checker list-append
  proven "lists-$count.sea" --checker list-append --model snapshot-isolation
  proven "lists-$count.sea" --checker list-append --model read-committed
  generated "broken-lists-$count.sea" list-append --ops "$ops" --isolation snapshot-isolation
  proven "broken-lists-$count.sea" --checker list-append --model serializable
  # Blind writes and reads, 20 clients, 10,000 keys.
  shape="--concurrency 20 --keys 10000 --distribution uniform --txn-length 1..15 --writes-per-key 65536..65536 --fail 0 --info 0"
  # shellcheck disable=SC2086
  generated "registers-$count.sea" rw-register --ops "$ops" $shape
  proven "registers-$count.sea" --checker rw-register --infer linearizable-keys
  proven "registers-$count.sea" --checker isolation --model serializable
  proven "registers-$count.sea" --checker isolation --model snapshot-isolation
  for model in causal monotonic-reads monotonic-writes writes-follow-reads pram axiomatic-read-committed axiomatic-read-atomic; do
    proven "registers-$count.sea" --checker isolation --model "$model"
  done
  # shellcheck disable=SC2086
  generated "broken-registers-$count.sea" rw-register --ops "$ops" $shape --anomaly lost-update,G1c,G-single --anomaly-rate 0.0001
  proven "broken-registers-$count.sea" --checker rw-register --infer linearizable-keys
  proven "broken-registers-$count.sea" --checker isolation --model causal
done
