#!/usr/bin/env bash
# What verifying a certificate takes beside judging and proving: `measure.sh FOLDER OUT`, from the workspace. Makes the histories with
# `seatrial generate` (in FOLDER, 700 MB), writes a line for each run to OUT: what, processor seconds (user, system), peak kB, exit status.
# SEATRIAL=BINARY measures that one; CERTIFICATES=no takes the certificates in FOLDER that an earlier run left.
set -euo pipefail
folder=${1:?usage: measure.sh FOLDER OUT} out=${2:?usage: measure.sh FOLDER OUT}
program=${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}
limit=${LIMIT:-300}
mkdir -p "$folder"

make() { # FILE OPTIONS...
  local file=$folder/$1
  shift
  [ -e "$file" ] || "$program" generate "$@" --quiet -o "$file"
}

timed() { # NAME COMMAND...
  local name=$1 status=0
  shift
  /usr/bin/time -q -f '%U %S %M' -o "$folder/time.txt" timeout "$limit" "$@" >"$folder/said.txt" 2>&1 || status=$?
  echo "$name $(tail -1 "$folder/time.txt") $status" | tee -a "$out"
}

all() { # NAME FILE OPTIONS...
  local name=$1 file=$folder/$2 proof=$folder/$1.json format=()
  shift 2
  [[ $file != *.plume ]] || format=(--format plume)
  if [ "${CERTIFICATES:-yes}" != no ]; then
    rm -f "$proof"
    timed "judge $name" "$program" check --quiet "${format[@]}" "$@" "$file"
    timed "prove $name" "$program" check --quiet "${format[@]}" "$@" --certificate "$proof" "$file"
  fi
  timed "verify $name" "$program" check --quiet "${format[@]}" --verify "$proof" "$file"
}

registers=(rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths)
for size in 6 7; do
  events=$((10 ** size))
  make "w$size.plume" "${registers[@]}" --to plume --ops $((events / 4)) --concurrency 50 --keys $((events / 50))
  for model in axiomatic-read-committed axiomatic-read-atomic causal; do
    all "$model-$size" "w$size.plume" --checker isolation --model "$model"
  done
  make "l$size.sea" list-append --ops $((2 * events))
  all "list-append-$size" "l$size.sea" --checker list-append
done
make b6.sea "${registers[@]}" --ops 2000000 --concurrency 20 --keys 10000
for model in serializable snapshot-isolation; do
  all "$model-6" b6.sea --checker isolation --model "$model"
done
all linearizable-keys-6 b6.sea --checker rw-register --infer linearizable-keys
