#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER [WHAT...]` from the workspace, files go into FOLDER. WHAT: small,
# texts, certificates, components, large (5 GB of files), huge (20 GB), adya; without, all but the last three.
set -eu
folder=$1
shift
what=" ${*:-small texts certificates components} "
mkdir -p "$folder"
here=$(dirname "$0")
seatrial() { "${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}" "$@"; }
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial
wanted() { case $what in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# timed NAME RUNS COMMAND...: processor seconds and peak memory of so many runs.
timed() {
  local name=$1 runs=$2
  shift 2
  for _ in $(seq "$runs"); do
    /usr/bin/time -f "$name: %U + %S s, %M KiB" "$@" >"$folder/out.txt" 2>"$folder/err.txt" || true
    tail -1 "$folder/err.txt"
  done
}
program="${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}"

# file NAME OPERATIONS OPTIONS...: makes FOLDER/NAME.
file() {
  local name=$1 operations=$2
  shift 2
  [ -f "$folder/$name" ] || seatrial generate list-append --ops "$operations" "$@" --quiet --out "$folder/$name"
}

# judged NAME RUNS OPTIONS...: judges FOLDER/NAME.
judged() {
  local name=$1 runs=$2
  shift 2
  timed "$name $*" "$runs" "$program" check --checker list-append --json "$@" "$folder/$name"
}

if wanted small; then
  file 1e5.sea 200000 && judged 1e5.sea 5
  file 1e6.sea 2000000 && judged 1e6.sea 5
  file clients.sea 2000000 --concurrency 1000 --info 0 && judged clients.sea 5
  file clients-info.sea 2000000 --concurrency 1000 --info 0.05 && judged clients-info.sea 5
  file few.sea 2000000 --anomaly G-single,G1c,G2-item --anomaly-rate 0.00001 && judged few.sea 5
  file many.sea 2000000 --anomaly G-single-process,stale-read,lost-write,G2-item,G1c --anomaly-rate 0.02
  judged many.sea 5
  file uncommitted.sea 200000 --isolation read-uncommitted && judged uncommitted.sea 5
fi
if wanted texts; then
  # What reading the bytes costs, and looking at each of them.
  file 1e6.jsonl 2000000
  timed "cat 1e6.jsonl" 3 cat "$folder/1e6.jsonl"
  timed "wc -l 1e6.jsonl" 3 wc -l "$folder/1e6.jsonl"
  judged 1e6.jsonl 5
  judged 1e6.jsonl 3 --certificate "$folder/certificate.json"
  timed "1e6.jsonl --verify" 1 "$program" check --verify "$folder/certificate.json" "$folder/1e6.jsonl"
  file 1e6.edn 2000000 && judged 1e6.edn 3
  file few.jsonl 2000000 --anomaly G-single,G1c,G2-item --anomaly-rate 0.00001 && judged few.jsonl 3
  rm -rf "$folder/findings" && judged few.jsonl 1 --findings "$folder/findings"
fi
if wanted certificates; then
  file 1e6.sea 2000000
  judged 1e6.sea 3 --certificate "$folder/certificate.json"
  timed "1e6.sea --verify" 1 "$program" check --verify "$folder/certificate.json" "$folder/1e6.sea"
fi
if wanted components; then
  for kind in stale overwrites skew; do
    [ -f "$folder/$kind.jsonl" ] || python3 "$here/component.py" "$kind" 100000 >"$folder/$kind.jsonl"
    judged "$kind.jsonl" 3
    judged "$kind.jsonl" 3 --model serializable
  done
fi
if wanted large; then
  file 1e7.sea 20000000 && judged 1e7.sea 1
  judged 1e7.sea 1 --certificate "$folder/certificate.json"
  file 5e7.sea 100000000 && judged 5e7.sea 1
  judged 5e7.sea 1 --certificate "$folder/certificate.json"
fi
if wanted huge; then
  file 5e8.sea 1000000000 && judged 5e8.sea 1
fi
if wanted adya; then
  # Another checker of the same histories, in the same minutes: https://crates.io/crates/adya.
  [ -x "$folder/adya/bin/adya" ] || cargo install --quiet --locked --root "$folder/adya" adya --version 0.1.0
  file 1e5.sea 200000
  [ -f "$folder/1e5.edn" ] || seatrial export --quiet --out "$folder/1e5.edn" "$folder/1e5.sea"
  for _ in 1 2 3; do
    timed "adya 1e5.edn" 1 "$folder/adya/bin/adya" ${ADYA:-check} "$folder/1e5.edn"
    judged 1e5.edn 1
    judged 1e5.sea 1
  done
fi
