#!/usr/bin/env bash
# Reading and judging transactions of other checkers: measure.sh SEATRIAL [EVENTS [TRANSACTIONS...]], in an empty folder with 1 GB
# of space; without numbers those of README.md. The binary is built by `cargo build --release -p seatrial`. What the readers alone
# cost: `cargo bench -p seatrial-history --bench transactions`.
set -eu
binary=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
events=${2:-1000000}
[ $# -gt 2 ] && shift 2 || set -- 100000 1000000

# run NAME EXIT COMMAND...: processor time (median of five) and peak memory; the command must end with this code.
run() {
  local name=$1 expected=$2 user system memory peak=0 times=() code
  shift 2
  for _ in 1 2 3 4 5; do
    code=0
    /usr/bin/time -f '%U %S %M' -o time.txt "$@" >out.txt 2>&1 || code=$?
    if [ "$code" != "$expected" ]; then
      echo "$name: exit code $code instead of $expected" >&2
      cat out.txt >&2
      exit 1
    fi
    read -r user system memory < <(tail -1 time.txt)
    times+=("$(awk "BEGIN { printf \"%.3f\", $user + $system }")")
    peak=$((memory > peak ? memory : peak))
  done
  echo "$name,$(printf '%s\n' "${times[@]}" | sort -n | sed -n 3p),$((peak / 1024))"
}

echo "what,processor_seconds,peak_mebibytes"
"$here/generate.py" plume "$events" w.txt
run "plume $events events: import" 0 "$binary" import w.txt -o w.sea --force -q
run "plume $events events: export of the test file" 0 "$binary" export w.sea --to plume -o again.txt --force -q
cmp w.txt again.txt
run "plume $events events: export to dbcop" 0 "$binary" export w.txt --to dbcop -o w.bincode --force -q
run "dbcop $events events: import" 0 "$binary" import w.bincode -o w.sea --force -q
run "plume $events events: causal" 0 "$binary" check --checker isolation --model causal w.txt -q
for count in "$@"; do
  "$here/generate.py" timekiller "$count" t.json
  run "timekiller $count transactions: SI" 0 "$binary" check t.json -q
  run "timekiller $count transactions: SER (refused)" 1 "$binary" check t.json -q --model serializable
  "$here/generate.py" timekiller-wrong "$count" t.json
  run "timekiller $count transactions: SI with one wrong read" 1 "$binary" check t.json -q
done
