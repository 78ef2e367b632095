#!/usr/bin/env bash
# Rates of import and export: measure.sh SEATRIAL LARGE.jepsen, in an empty folder with 2 GB of space. The binary is built by
# `cargo build --release --features parquet`, the second file by crates/history/tests/data/jepsen/Fixtures.java.
set -eu
binary=$1 jepsen=$2

# run NAME COMMAND...: processor time (best of three) and peak memory.
run() {
  local name=$1 best=999999 memory=0 user system
  shift
  for _ in 1 2 3; do
    command time -f '%U %S %M' -o time.txt "$@" >/dev/null
    read -r user system memory <time.txt
    best=$(awk "BEGIN { t = $user + $system; print t < $best ? t : $best }")
  done
  echo "$name,$best,$(awk "BEGIN { printf \"%.2f\", 1 / $best }"),$((memory / 1024))"
}

"$binary" generate list-append --ops 1000000 --seed 1 -o big.sea >/dev/null
echo "what,processor_seconds,million_operations_per_second,peak_mebibytes"
for to in edn jsonl json sea arrow parquet; do
  run "export $to" "$binary" export big.sea -q --force --to "$to" -o "out.$to"
done
for from in edn jsonl json; do
  run "import $from" "$binary" import "out.$from" -q --force -o back.sea
done
run "import jepsen" "$binary" import "$jepsen" -q --force -o back.sea
