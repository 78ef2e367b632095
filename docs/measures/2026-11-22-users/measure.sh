#!/usr/bin/env bash
# What a user gets: `measure.sh FOLDER [PART...]`, from the workspace. Parts:
#   plain   `seatrial check FILE` without options, beside the options that the scoreboard picks by hand
#   peers   the checkers that a package registry has, on the same histories in the same minutes: adya (crates.io), Porcupine (Go modules)
#   hurt    histories that are hard: few keys, many clients, unknown outcomes, slow answers, 10,000 sessions
#   real    `seatrial test kv` with each workload: operations/s of a real run (real processes, real sockets, history on disk)
# Histories are made by `seatrial generate` and kept in FOLDER. Needs cargo, for `peers` also go; with GNU time it measures memory.
# SEATRIAL=BINARY measures that one instead of building. RUNS (3), LIMIT seconds for one check (60), SECONDS_REAL for one test (10).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: measure.sh FOLDER [PART...]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
runs=${RUNS:-3} limit=${LIMIT:-60} seconds_real=${SECONDS_REAL:-10}
program=${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial

# timed COMMAND...: processor seconds, wall seconds, peak kilobytes (0: not measured), exit status.
timed() {
  local status=0
  if [ -x /usr/bin/time ]; then
    /usr/bin/time -q -f '%U %S %e %M' -o "$folder/time.txt" timeout -s INT -k 5 "$limit" "$@" >"$folder/output.txt" 2>&1 || status=$?
    tail -1 "$folder/time.txt" | awk -v status=$status '{ printf "%.2f %.2f %d %d\n", $1 + $2, $3, $4, status }'
  else
    local TIMEFORMAT='%U %S %R'
    { time timeout -s INT -k 5 "$limit" "$@" >"$folder/output.txt" 2>&1 || echo $? >"$folder/status.txt"; } 2>"$folder/time.txt"
    [ ! -s "$folder/status.txt" ] || status=$(cat "$folder/status.txt")
    rm -f "$folder/status.txt"
    tail -1 "$folder/time.txt" | awk -v status=$status '{ printf "%.2f %.2f 0 %d\n", $1 + $2, $3, status }'
  fi
}

word() {
  case $1 in
    0) echo valid ;; 1) echo invalid ;; 2) echo unknown ;;
    124 | 130 | 137) echo "no answer in $limit s" ;;
    *) echo "error $1" ;;
  esac
}

# row WHAT COMMAND...: the median of RUNS; one run where the first one takes longer than a tenth of the limit.
row() {
  local what=$1 all one cpu wall memory status
  shift
  all=$(timed "$@")
  read -r cpu _ <<<"$all"
  if awk -v cpu="$cpu" -v limit="$limit" 'BEGIN { exit !(cpu < limit / 10) }'; then
    for _ in $(seq 2 "$runs"); do
      one=$(timed "$@")
      all+=$'\n'$one
    done
  fi
  local count
  count=$(wc -l <<<"$all")
  read -r cpu wall _ status < <(sort -n <<<"$all" | sed -n "$(((count + 1) / 2))p")
  memory=$(sort -n -k3 <<<"$all" | tail -1 | cut -d' ' -f3)
  echo "| $what | $(word "$status") | $cpu | $wall | $(((memory + 512) / 1024)) | $count |"
}

head_of() {
  echo
  echo "## $1"
  echo
  echo "load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo '?') when it began"
  echo
  echo "| what | verdict | processor s | wall s | peak MB | runs |"
  echo "| --- | --- | --- | --- | --- | --- |"
}

# make NAME OPTIONS...: FOLDER/NAME, unless it is there.
make() {
  local name=$1
  shift
  [ -e "$folder/$name" ] && return
  "$program" generate "$@" --quiet -o "$folder/unfinished-$name"
  mv "$folder/unfinished-$name" "$folder/$name"
}

# to NAME FORMAT: the same history in another format.
to() { [ -e "$folder/$1.$2" ] || "$program" export --quiet --to "$2" --out "$folder/$1.$2" "$folder/$1.sea"; }

check() { # WHAT FILE OPTIONS...
  local what=$1 file=$2
  shift 2
  row "$what: \`seatrial check${*:+ $*} $file\`" "$program" check --quiet "$@" "$folder/$file"
}

shape=(rw-register --fail 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths)
blind=("${shape[@]}" --info 0)

part_plain() {
  head_of "The command as it is typed, beside options picked by hand"
  make lists.sea list-append --ops 2000000
  check "10^6 list transactions" lists.sea
  check "the same" lists.sea --checker list-append
  make lists-bad.sea list-append --ops 2000000 --anomaly G2-item --anomaly-at 0.9
  check "10^6 list transactions, G2-item at 90 %" lists-bad.sea
  make blind.sea "${blind[@]}" --concurrency 20 --ops 2000000 --keys 10000
  check "10^6 blind register transactions" blind.sea
  check "the same" blind.sea --checker rw-register --infer linearizable-keys
  check "the same" blind.sea --checker isolation --model serializable
  make blind-bad.sea "${blind[@]}" --concurrency 20 --ops 2000000 --keys 10000 --anomaly G2-item --anomaly-at 0.9
  check "10^6 blind register transactions, G2-item at 90 %" blind-bad.sea
  make small.sea list-append --ops 200000
  to small edn
  check "10^5 list transactions" small.sea
  check "the same as EDN" small.edn
  make weak.plume "${blind[@]}" --to plume --ops 250000 --keys 20000 --concurrency 50
  check "125,000 register transactions without times" weak.plume --format plume
  check "the same" weak.plume --format plume --checker isolation --model causal
  make sets.sea set --ops 1000000
  check "10^6 events on sets" sets.sea
  make queues.sea queue --ops 1000000
  check "10^6 events on queues" queues.sea
  make registers.sea register --ops 1000000 --concurrency 5
  check "10^6 events on registers, 5 clients" registers.sea
  row "\`seatrial show lists.sea --count 1\`" "$program" show --count 1 "$folder/lists.sea"
}

part_peers() {
  head_of "Others on the same histories in the same minutes"
  if [ ! -x "$folder/adya/bin/adya" ]; then cargo install --quiet --locked --root "$folder/adya" adya --version 0.1.0; fi
  make small.sea list-append --ops 200000
  to small edn
  check "10^5 list transactions" small.edn
  row "the same: adya 0.1.0" "$folder/adya/bin/adya" check --model list-append --consistency-models strict-serializable "$folder/small.edn"
  make blind-32000.sea "${blind[@]}" --concurrency 20 --ops 64000 --keys 10000
  to blind-32000 edn
  check "32,000 blind register transactions" blind-32000.edn
  row "the same: adya 0.1.0 (inference alone, no decision)" \
    "$folder/adya/bin/adya" check --model rw-register --consistency-models strict-serializable "$folder/blind-32000.edn"
  [ -x "$folder/porcupine" ] || (cd "$here/porcupine" && go build -o "$folder/porcupine" .)
  local clients ops name
  for clients in 5 10 16 32; do
    for ops in 1000 10000; do
      name=register-$clients-$ops
      make "$name.sea" register --ops "$ops" --keys 1 --concurrency "$clients"
      to "$name" jsonl
      check "compare-and-set register, one key at a time, $clients clients, $ops events" "$name.jsonl" --checker cas-register
      row "the same: Porcupine 1.3.1" "$folder/porcupine" "$folder/$name.jsonl" "$limit"
    done
  done
}

part_hurt() {
  head_of "Histories that are hard"
  local clients model
  for clients in 20 1000; do
    make "ten-$clients.sea" "${shape[@]}" --ops 200000 --keys 10 --info 0.1 --concurrency "$clients"
    make "ten-$clients-bad.sea" "${shape[@]}" --ops 200000 --keys 10 --info 0.1 --concurrency "$clients" --anomaly lost-update --anomaly-at 0.9
    for model in strict-serializable serializable snapshot-isolation parallel-snapshot-isolation; do
      check "10 keys, 100,000 transactions, 10 % unknown" "ten-$clients.sea" --checker isolation --model $model
      check "the same, a lost update at 90 %" "ten-$clients-bad.sea" --checker isolation --model $model
    done
  done
  make sessions.plume "${blind[@]}" --to plume --ops 250000 --keys 20000 --concurrency 10000
  check "125,000 transactions of 10,000 sessions" sessions.plume --format plume --checker isolation --model causal
  make two-keys.sea list-append --ops 200000 --keys 2 --concurrency 1000 --info 0.1
  check "lists: two keys at a time, 1,000 clients, 10 % unknown" two-keys.sea
  make long-lists.sea list-append --ops 200000 --keys 10 --writes-per-key 65536
  check "lists: keys that never retire" long-lists.sea
  make hot.sea register --ops 2000 --keys 1 --concurrency 32
  check "registers: one key, 32 clients" hot.sea
  make crowd.sea register --ops 20000 --concurrency 100
  check "registers: ten keys, 100 clients" crowd.sea
}

part_real() {
  echo
  echo "## Real runs"
  echo
  echo "\`seatrial test kv --workload W --time $seconds_real\`, once without faults and once with the usual ones; operations are what clients asked for."
  echo
  echo "| workload | faults | verdict | operations | operations/s | ok |"
  echo "| --- | --- | --- | --- | --- | --- |"
  local workload faults out status
  for workload in register cas-register list-append rw-register set counter queue total-queue bank unique-ids long-fork monotonic mutex lock log; do
    for faults in none kill,pause,partition; do
      out=$folder/real-$workload-$faults
      rm -rf "$out"
      status=0
      "$program" test kv --workload "$workload" --time "$seconds_real" --faults "$faults" --seed 1 --out "$out" >"$folder/output.txt" 2>&1 || status=$?
      awk -v workload="$workload" -v faults="$faults" -v status="$(word $status)" '/ operations +ok/ {
        ok = rate = "-"
        for (i = 2; i <= NF; i++) { if ($(i - 1) == "ok") ok = $i; if ($i ~ /\/s$/) rate = substr($i, 1, length($i) - 2) }
        print "| " workload " | " faults " | " status " | " $1 " | " rate " | " ok " % |"; exit
      }' "$folder/output.txt"
    done
  done
}

[ $# -gt 0 ] || set -- plain peers hurt real
for part in "$@"; do "part_$part"; done
