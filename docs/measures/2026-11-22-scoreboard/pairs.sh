#!/usr/bin/env bash
# Rows of ../2026-11-21-scoreboard with two binaries in turn: `pairs.sh FOLDER OLD NEW`. Histories go to FOLDER. Prints for each row the
# least processor seconds (user and system) of RUNS (5) runs of each, the ratio of those, and the peak memory.
set -euo pipefail
folder=${1:?usage: pairs.sh FOLDER OLD NEW} old=$2 new=$3 runs=${RUNS:-5}
mkdir -p "$folder"
registers=(rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths)

make() { # NAME OPTIONS...
  local name=$1
  shift
  [ -e "$folder/$name" ] || "$old" generate "$@" --quiet -o "$folder/$name"
}

run() { # BINARY OPTIONS...: seconds and kilobytes
  /usr/bin/time -q -f '%U %S %M' -o "$folder/time.txt" "$@" >/dev/null 2>&1 || true
  tail -1 "$folder/time.txt" | awk '{ printf "%.2f %d\n", $1 + $2, $3 }'
}

row() { # WHAT OPTIONS...
  local what=$1 olds="" news=""
  shift
  for _ in $(seq "$runs"); do
    olds+="$(run "$old" check "$@")"$'\n'
    news+="$(run "$new" check "$@")"$'\n'
  done
  read -r old_seconds old_memory < <(sort -n <<<"${olds%$'\n'}" | head -1)
  read -r new_seconds new_memory < <(sort -n <<<"${news%$'\n'}" | head -1)
  awk -v what="$what" -v os="$old_seconds" -v om="$old_memory" -v ns="$new_seconds" -v nm="$new_memory" 'BEGIN {
    printf "| %s | %.2f | %.2f | %.2f | %d | %d |\n", what, os, ns, ns / (os + 1e-9), om / 1024, nm / 1024 }'
}

proof() { # WHAT NAME OPTIONS...: verification, of a certificate by each itself (their versions differ)
  local what=$1 name=$2
  shift 2
  "$old" check --quiet "$@" --certificate "$folder/old.json" "$folder/$name" >/dev/null
  "$new" check --quiet "$@" --certificate "$folder/new.json" "$folder/$name" >/dev/null
  local olds="" news=""
  for _ in $(seq "$runs"); do
    olds+="$(run "$old" check "$folder/$name" --verify "$folder/old.json")"$'\n'
    news+="$(run "$new" check "$folder/$name" --verify "$folder/new.json")"$'\n'
  done
  read -r old_seconds old_memory < <(sort -n <<<"${olds%$'\n'}" | head -1)
  read -r new_seconds new_memory < <(sort -n <<<"${news%$'\n'}" | head -1)
  awk -v what="$what" -v os="$old_seconds" -v om="$old_memory" -v ns="$new_seconds" -v nm="$new_memory" 'BEGIN {
    printf "| %s | %.2f | %.2f | %.2f | %d | %d |\n", what, os, ns, ns / os, om / 1024, nm / 1024 }'
}

b() { make "$1" "${registers[@]}" --ops $((2 * $2)) --concurrency 20 --keys 10000 "${@:3}"; }
make w.plume "${registers[@]}" --to plume --ops 250000 --concurrency 50 --keys 20000
make l-1e5.sea list-append --ops 200000
make l-1e6.sea list-append --ops 2000000
make l-clients.sea list-append --ops 200000 --concurrency 1000 --info 0.05
b b-32000.sea 32000
b b-1e5.sea 100000
b b-1e6.sea 1000000
b r-32000.sea 32000 --read-before-write

echo "load $(cut -d' ' -f1 /proc/loadavg) when it began"
echo
echo "| row | old, s | new, s | new / old | old, MB | new, MB |"
echo "| --- | --- | --- | --- | --- | --- |"
row "1: W 1e6, read committed" "$folder/w.plume" --checker isolation --model axiomatic-read-committed
row "2: W 1e6, read atomic" "$folder/w.plume" --checker isolation --model axiomatic-read-atomic
row "3: W 1e6, causal" "$folder/w.plume" --checker isolation --model causal
row "5: L 1e5, strict serializable" "$folder/l-1e5.sea" --checker list-append
row "6: L 1e6, strict serializable" "$folder/l-1e6.sea" --checker list-append
row "7: L 1e5, 1,000 clients" "$folder/l-clients.sea" --checker list-append
row "8: B 32,000, rw-register" "$folder/b-32000.sea" --checker rw-register
row "9: B 1e6, linearizable keys" "$folder/b-1e6.sea" --checker rw-register --infer linearizable-keys
row "10: B 1e5, serializable" "$folder/b-1e5.sea" --checker isolation --model serializable
row "10: B 1e6, serializable" "$folder/b-1e6.sea" --checker isolation --model serializable
row "11: B 1e6, snapshot isolation" "$folder/b-1e6.sea" --checker isolation --model snapshot-isolation
row "12: R 32,000, serializable" "$folder/r-32000.sea" --checker isolation --model serializable
row "12: R 32,000, snapshot isolation" "$folder/r-32000.sea" --checker isolation --model snapshot-isolation
proof "verification of L 1e6" l-1e6.sea --checker list-append
proof "verification of B 1e6, serializable" b-1e6.sea --checker isolation --model serializable
