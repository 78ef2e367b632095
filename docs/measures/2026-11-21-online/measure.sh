#!/usr/bin/env bash
# The figures of README.md beside this: `measure.sh FOLDER OPERATIONS [WHAT...]` from the workspace; files go into FOLDER (some 15
# bytes an operation). WHAT: lists, registers, busy, bad; without, all of them.
#
# A producer writes a test file, a second process judges it meanwhile; then the same file is judged again by itself, which says what
# the judge needs of a processor when nothing holds it up.
set -eu
folder=$1
operations=$2
shift 2
what=" ${*:-lists registers busy bad} "
mkdir -p "$folder"
program="${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}"
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial
wanted() { case $what in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# memory PID FILE: resident KiB of a process, every two seconds, until it ends.
memory() {
  while grep VmRSS "/proc/$1/status" 2>/dev/null | awk '{print $2}' >>"$2"; do sleep 2; done
}

# timed NAME COMMAND...: processor seconds and peak memory.
timed() {
  local name=$1
  shift
  /usr/bin/time -f "$name: %U + %S s, %M KiB" "$@" >"$folder/out.txt" 2>"$folder/err.txt" || true
  tail -1 "$folder/err.txt"
  grep -o '"windows": [0-9]*\|"largest_window": [0-9]*\|"valid": [a-z"]*\|"operations": [0-9]*' "$folder/out.txt" | sort -u | tr '\n' ' '
  echo
}

# followed NAME OPERATIONS WORKLOAD OPTIONS...: writes FOLDER/NAME.sea while another process judges it, then judges it once more.
followed() {
  local name=$1 count=$2
  shift 2
  local file="$folder/$name.sea"
  rm -f "$file" "$folder/$name.rss"
  "$program" generate "$@" --ops "$count" --quiet --out "$file" &
  local producer=$!
  (
    sleep 3
    follower=$(pgrep -nf "check --follow --json $file") && memory "$follower" "$folder/$name.rss"
  ) &
  timed "$name, beside its producer" "$program" check --follow --json "$file"
  wait "$producer"
  awk '{ if ($1 > all) all = $1; rss[NR] = $1 } END {
    for (i = 1; i <= NR; i++) { if (i <= NR / 4) { if (rss[i] > first) first = rss[i] } else if (i > 3 * NR / 4 && rss[i] > last) last = rss[i] }
    printf "  resident KiB: at most %d in the first quarter, %d in the last\n", first, last }' "$folder/$name.rss" 2>/dev/null || true
  timed "$name, the file is there" "$program" check --follow --json "$file"
  ls -l "$file" | awk '{ printf "  file: %d MB\n", $5 / 1e6 }'
  rm -f "$file"
}

if wanted lists; then followed lists "$operations" list-append; fi
# As many clients as a test has, a key for every other of them.
if wanted registers; then followed registers "$operations" register --concurrency 20 --keys 10 --distribution uniform; fi
# Half of a hundred clients on one key.
if wanted busy; then followed busy "$((operations / 100))" register; fi
# Violations on the way: told while it goes on.
if wanted bad; then
  file="$folder/bad.sea"
  rm -f "$file"
  "$program" generate list-append --ops "$((operations / 10))" --anomaly G-single,G1a --anomaly-rate 0.00001 --quiet --out "$file" &
  "$program" check --follow "$file" >"$folder/bad.txt" 2>"$folder/bad.log" || true
  wait
  grep -n "behind\|^ G" "$folder/bad.log" | head -40
  rm -f "$file"
fi
