#!/usr/bin/env bash
# Plain `check` of blind register transactions with its proof: `measure.sh FOLDER`, from the workspace. Makes the histories of family B
# (see ../2026-11-21-scoreboard) with `seatrial generate` in FOLDER, test files of 32,000 and 10^6 transactions, and twins with one anomaly
# at nine tenths; prints a table of verdict, proof, processor seconds and peak memory. SEATRIAL=BINARY measures that one.
set -euo pipefail
folder=${1:?usage: measure.sh FOLDER}
mkdir -p "$folder"
program=${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial
shape=(rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths)

# make NAME COUNT OPTIONS...: a history of so many transactions, if it is not there.
make() {
  local name=$1 count=$2
  shift 2
  [ -e "$folder/$name" ] || "$program" generate "${shape[@]}" --ops $((2 * count)) --concurrency 20 --keys 10000 "$@" --quiet -o "$folder/$name"
}

# row WHAT NAME OPTIONS...: one line of the table.
row() {
  local what=$1 name=$2 status=0 seconds memory
  shift 2
  /usr/bin/time -q -f '%U %S %M' -o "$folder/time.txt" "$program" check --json "$@" "$folder/$name" >"$folder/said.json" 2>&1 || status=$?
  read -r user system memory < <(tail -1 "$folder/time.txt")
  seconds=$(awk -v u="$user" -v s="$system" 'BEGIN { printf "%.2f", u + s }')
  printf '| %s | %s | %s | %s | %s |\n' "$what" \
    "$(python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); print(d["valid"], "|", d["proof"] or ", ".join(d["anomalies"]))' "$folder/said.json")" \
    "$seconds" "$((memory / 1024))" "$status"
}

echo "| history | valid | proof or anomalies | processor s | peak MB | exit |"
echo "| --- | --- | --- | --- | --- | --- |"
for count in 32000 1000000; do
  make "B-$count.sea" "$count"
  make "B-$count-G-single.sea" "$count" --anomaly G-single --anomaly-at 0.9
  make "B-$count-stale-read.sea" "$count" --anomaly stale-read --anomaly-at 0.9
  row "B $count, plain" "B-$count.sea"
  row "B $count, serializable" "B-$count.sea" --model serializable
  row "B $count, linearizable keys" "B-$count.sea" --checker rw-register --infer linearizable-keys
  row "B $count, G-single at 90 %, plain" "B-$count-G-single.sea"
  row "B $count, stale-read at 90 %, plain" "B-$count-stale-read.sea"
  row "B $count, stale-read at 90 %, linearizable keys" "B-$count-stale-read.sea" --checker rw-register --infer linearizable-keys
done
