#!/usr/bin/env bash
# Register transactions in a text: `measure.sh FOLDER [PROGRAM...]` from the workspace; the history goes into FOLDER, each PROGRAM (or the
# one that is built) judges it twice. Prints processor seconds (user + system) and peak memory of the whole process.
set -euo pipefail
folder=$1
shift
mkdir -p "$folder"
if [ $# = 0 ]; then
  cargo build --quiet --release -p seatrial
  set -- "${CARGO_TARGET_DIR:-target}/release/seatrial"
fi
# Family B of the scoreboard, 1,000,000 transactions.
[ -f "$folder/b.sea" ] || "$1" generate rw-register --ops 2000000 --concurrency 20 --keys 10000 --distribution uniform \
  --writes-per-key 1000000000 --txn-length 1..15 --even-lengths --fail 0 --info 0 --quiet -o "$folder/b.sea"
[ -f "$folder/b.jsonl" ] || "$1" export "$folder/b.sea" -o "$folder/b.jsonl" >/dev/null

judge() {
  for program; do
    for _ in 1 2; do
      echo -n "${judged[*]}, $program: "
      /usr/bin/time -f '%U + %S s, %M KB' timeout -k 5 300 "$program" check "${judged[@]}" --quiet "$folder/b.jsonl" 2>&1 >/dev/null | tail -1
    done
  done
}

judged=(--checker rw-register --infer linearizable-keys) && judge "$@"
judged=(--checker isolation --model causal) && judge "$@"
judged=(--checker isolation --model serializable) && judge "$@"
