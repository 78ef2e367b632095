#!/usr/bin/env bash
# Reading and judging transactions of other checkers: measure.sh SEATRIAL, in an empty folder with 1 GB of space. The binary is
# built by `cargo build --release -p seatrial`. What the readers alone cost: `cargo bench -p seatrial-history --bench transactions`.
set -eu
binary=$1
here=$(dirname "$0")

# run NAME COMMAND...: processor time (median of five) and peak memory.
run() {
  local name=$1 user system memory peak=0 times=()
  shift
  for _ in 1 2 3 4 5; do
    command time -f '%U %S %M' -o time.txt "$@" >/dev/null || true
    read -r user system memory < <(tail -1 time.txt)
    times+=("$(awk "BEGIN { printf \"%.3f\", $user + $system }")")
    peak=$((memory > peak ? memory : peak))
  done
  echo "$name,$(printf '%s\n' "${times[@]}" | sort -n | sed -n 3p),$((peak / 1024))"
}

echo "what,processor_seconds,peak_mebibytes"
"$here/generate.py" plume 1000000 w1e6.txt
run "plume 1e6 events: import" "$binary" import w1e6.txt -o w.sea --force -q
run "plume 1e6 events: export of the test file" "$binary" export w.sea --to plume -o w.txt --force -q
run "plume 1e6 events: export to dbcop" "$binary" export w1e6.txt --to dbcop -o w.bincode --force -q
run "dbcop 1e6 events: import" "$binary" import w.bincode -o w.sea --force -q
for count in 100000 1000000; do
  "$here/generate.py" timekiller $count t.json
  run "timekiller $count transactions: SI" "$binary" check t.json -q
  run "timekiller $count transactions: SER, refused" "$binary" check t.json -q --model serializable
  "$here/generate.py" timekiller-wrong $count t.json
  run "timekiller $count transactions: SI, one wrong read" "$binary" check t.json -q
done
