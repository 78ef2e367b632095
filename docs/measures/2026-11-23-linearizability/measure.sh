#!/usr/bin/env bash
# Linearizability beside Porcupine: measure.sh SEATRIAL FOLDER [SECONDS] > measure.txt
#
# SEATRIAL is the release binary, FOLDER a place for some 2 GB of histories. Needs Go (Porcupine is fetched as a module) and
# Python. Each line: what, then the least CPU seconds (user + system, whole process) of three runs, the most memory, and the
# exit status: 0 linearizable, 1 not, 2 no answer. Porcupine gets SECONDS (60) and its partition by key.
set -u
seatrial=$(realpath "$1")
folder=$2
limit=${3:-60}
here=$(cd "$(dirname "$0")" && pwd)
# Porcupine's program is that of the other comparison.
program=$here/../2026-11-22-users/porcupine
mkdir -p "$folder"
(cd "$program" && GOFLAGS=-mod=mod go build -o "$folder/porcupine" .) || exit 1
logs=$(cd "$program" && go list -m -f '{{.Dir}}' github.com/anishathalye/porcupine)/test_data
cd "$folder" || exit 1

# measure NAME WORDS...
measure() {
  local name=$1 least='' most=0 status=0
  shift
  for _ in 1 2 3; do
    status=0
    /usr/bin/time -o time.txt -f '%U %S %M' timeout 120 "$@" >/dev/null 2>&1 || status=$?
    local seconds memory
    seconds=$(tail -1 time.txt | awk '{printf "%.2f", $1 + $2}')
    memory=$(tail -1 time.txt | awk '{printf "%d", $3 / 1000}')
    [ -z "$least" ] && least=$seconds
    least=$(awk -v a="$seconds" -v b="$least" 'BEGIN {print (a < b) ? a : b}')
    [ "$memory" -gt "$most" ] && most=$memory
    # What takes half a minute is measured once.
    awk -v a="$seconds" 'BEGIN {exit !(a > 30)}' && break
  done
  printf '%-58s %8s s %6s MB   exit %s\n' "$name" "$least" "$most" "$status"
}

echo "# $(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg)"
echo "## Compare-and-set register, each value written once, one key"
for row in "2000 32" "20000 16" "200000 16" "2000000 32" "2000000 1000" "20000000 32"; do
  set -- $row
  "$seatrial" generate register --events "$1" --keys 1 --concurrency "$2" --out u.sea >/dev/null 2>&1
  measure "seatrial  $(($1 / 2)) operations, $2 clients" "$seatrial" check u.sea
  if [ "$1" -le 20000 ]; then
    "$seatrial" export u.sea --to jsonl --out u.jsonl >/dev/null 2>&1
    measure "porcupine $(($1 / 2)) operations, $2 clients" ./porcupine u.jsonl "$limit"
  fi
  rm -f u.sea u.jsonl
done

echo "## Compare-and-set register, five values, one key"
for row in "10000 8 1" "100000 8 1" "100000 8 1 wrong" "200 100 1" "200 100 1 wrong"; do
  python3 "$here/histories.py" cas $row >c.edn
  "$seatrial" import c.edn --keyed --out c.sea >/dev/null 2>&1
  "$seatrial" export c.sea --to jsonl --out c.jsonl >/dev/null 2>&1
  measure "seatrial  operations, clients, seed: $row" "$seatrial" check c.sea --checker cas-register
  measure "porcupine operations, clients, seed: $row" ./porcupine c.jsonl "$limit"
  rm -f c.edn c.sea c.jsonl
done

echo "## Key-value store: Porcupine's logs, and 100 clients on one key"
for log in "$logs"/kv/*.txt; do
  measure "seatrial  $(basename "$log")" "$seatrial" check "$log"
  measure "porcupine $(basename "$log")" ./porcupine kv "$log" "$limit"
done
for row in "200 100 1" "200 100 1 wrong" "3000 8 1"; do
  python3 "$here/histories.py" kv $row >k.edn
  measure "seatrial  operations, clients, seed: $row" "$seatrial" check k.edn --checker kv-map
  measure "porcupine operations, clients, seed: $row" ./porcupine kv k.edn "$limit"
  rm -f k.edn
done

echo "## The 102 logs of etcd, together"
all() { for log in "$logs"/jepsen/*.log; do "$seatrial" check "$log" --checker cas-register; done; }
export -f all
export seatrial logs
measure "seatrial  102 processes" bash -c all
measure "seatrial  one command" "$seatrial" check "$logs"/jepsen/*.log --checker cas-register
(cd "$program" && GOFLAGS=-mod=mod go test -c -o "$folder/etcd.test" github.com/anishathalye/porcupine)
measure "porcupine its own test, built before" bash -c \
  "cd '$logs/..' && '$folder/etcd.test' -test.run 'EtcdJepsen' -test.count 1"

echo "## Collections, each element added once"
for kind in fifo-queue stack priority-queue bag; do
  for row in "1000 8 1" "1000000 8 1" "1000000 8 1 wrong" "1000000 100 1"; do
    python3 "$here/histories.py" $kind $row >q.edn
    "$seatrial" import q.edn --out q.sea >/dev/null 2>&1
    measure "seatrial  $kind, operations, clients, seed: $row" "$seatrial" check q.sea --checker $kind
    rm -f q.edn q.sea
  done
done
