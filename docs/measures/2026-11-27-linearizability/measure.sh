#!/usr/bin/env bash
# Rows 15 to 18 and 21 of the scoreboard of checkers, beside Porcupine: measure.sh SEATRIAL FOLDER [SECONDS] > measure.txt
#
# SEATRIAL is a release binary, FOLDER a place for some 2 GB of histories, which are kept for the next run. Needs Python, and Go
# (Porcupine is fetched as a module; it gets SECONDS by the clock, 20 unless given). FARM=1 adds row 21, which builds tests;
# HISTORIES (100,000) is its number of histories for each type.
#
# Each line: what, CPU seconds (user and system, whole process, the file read included), seconds by the clock, most memory, exit
# status: 0 valid, 1 not, 2 no answer. The least of three runs where a run takes under two seconds, else one run.
set -u
seatrial=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
limit=${3:-20}
here=$(cd "$(dirname "$0")" && pwd)
measures=$here/..
program=$measures/2026-11-22-users/porcupine
plain=stats,unhandled-exceptions,availability,clock-plot,set,set-full,queue,total-queue,unique-ids,counter,bank
plain=$plain,long-fork,monotonic,lock,log
(cd "$program" && GOFLAGS=-mod=mod go build -o "$folder/porcupine" .) || exit 1
logs=$(cd "$program" && go list -m -f '{{.Dir}}' github.com/anishathalye/porcupine)/test_data
cd "$folder" || exit 1

# measure NAME WORDS...
measure() {
  local name=$1 least='' line='' status=0 most=0
  shift
  for _ in 1 2 3; do
    status=0
    /usr/bin/time -o time.txt -f '%U %S %e %M' timeout 60 "$@" >out.txt 2>&1 || status=$?
    local cpu wall memory
    cpu=$(tail -1 time.txt | awk '{printf "%.2f", $1 + $2}')
    wall=$(tail -1 time.txt | awk '{printf "%.2f", $3}')
    memory=$(tail -1 time.txt | awk '{printf "%d", $4 / 1000}')
    [ "$memory" -gt "$most" ] && most=$memory
    if [ -z "$least" ] || awk -v a="$cpu" -v b="$least" 'BEGIN {exit !(a < b)}'; then
      least=$cpu
      line=$wall
    fi
    awk -v a="$wall" 'BEGIN {exit !(a > 2)}' && break
  done
  printf '%-58s %7s CPU-s %7s s %6s MB   exit %s\n' "$name" "$least" "$line" "$most" "$status"
}

# made FILE WORDS...: makes a history by `seatrial generate`, unless it is there.
made() {
  local file=$1
  shift
  [ -e "$file" ] || "$seatrial" generate "$@" --out "$file" >/dev/null 2>&1
}

# drawn FILE KIND OPERATIONS CLIENTS SEED [wrong]: the same by histories.py.
drawn() {
  local file=$1
  shift
  [ -e "$file" ] && return
  python3 "$measures/2026-11-23-linearizability/histories.py" "$@" >drawn.edn
  case $1 in
    cas | register) "$seatrial" import drawn.edn --keyed --out "$file" >/dev/null 2>&1 ;;
    *) "$seatrial" import drawn.edn --out "$file" >/dev/null 2>&1 ;;
  esac
  rm -f drawn.edn
}

# beside NAME FILE CHECKER: both on one register.
beside() {
  measure "seatrial  $1" "$seatrial" check "$2" --checker "$3"
  [ -e "$2.jsonl" ] || "$seatrial" export "$2" --to jsonl --out "$2.jsonl" >/dev/null 2>&1
  measure "porcupine $1" ./porcupine "$2.jsonl" "$limit"
}

echo "# $(nproc) cores, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg), Porcupine $limit s"
echo "## 15: register, each value written once, one key"
made u3.sea register --events 2000 --keys 1 --concurrency 32
beside "10^3 operations, 32 clients" u3.sea cas-register
made u4.sea register --events 20000 --keys 1 --concurrency 16
beside "10^4 operations, 16 clients" u4.sea cas-register
for row in "2000000 16 10^6" "20000000 32 10^7"; do
  set -- $row
  made "u$1.sea" register --events "$1" --keys 1 --concurrency "$2"
  measure "seatrial  $3 operations, $2 clients" "$seatrial" check "u$1.sea" --checker cas-register
done

echo "## 16: compare-and-set register, five values, one key"
for row in "10000 8 1" "100000 8 1" "200 100 1" "200 100 1 wrong"; do
  file=c-${row// /-}.sea
  drawn "$file" cas $row
  beside "operations, clients, seed: $row" "$file" cas-register
done

echo "## 17: the 102 logs of etcd; key-value logs"
# One file, etcd_095.log, is empty.
mapfile -t etcd < <(find "$logs/jepsen" -name '*.log' -size +0 | sort)
measure "seatrial  ${#etcd[@]} logs, one command" "$seatrial" check "${etcd[@]}" --checker cas-register
[ -e etcd.test ] || (cd "$program" && GOFLAGS=-mod=mod go test -c -o "$folder/etcd.test" github.com/anishathalye/porcupine)
measure "porcupine 102 logs, its own test" bash -c \
  "cd '$logs/..' && '$folder/etcd.test' -test.run 'EtcdJepsen' -test.count 1"
for log in "$logs"/kv/*.txt; do
  measure "seatrial  $(basename "$log")" "$seatrial" check "$log"
  measure "porcupine $(basename "$log")" ./porcupine kv "$log" "$limit"
done

echo "## 18: queue, stack, priority queue, bag: 10^6 operations, 8 clients, each element once"
for kind in fifo-queue stack priority-queue bag; do
  for wrong in "" wrong; do
    drawn "q-$kind$wrong.sea" $kind 1000000 8 1 $wrong
    measure "seatrial  $kind $wrong" "$seatrial" check "q-$kind$wrong.sea" --checker $kind
  done
done
drawn followed.sea fifo-queue 1000000 8 1
measure "seatrial  fifo-queue, followed from its beginning" \
  "$seatrial" check --follow followed.sea --checker fifo-queue

echo "## Plain checkers in one pass: 10^7 operations (2 x 10^7 events)"
for kind in queue set; do
  made "p-$kind.sea" $kind --events 20000000
  measure "seatrial  stats alone, $kind" "$seatrial" check --quiet --checker stats "p-$kind.sea"
  measure "seatrial  fifteen checkers, $kind" "$seatrial" check --quiet --checker "$plain" "p-$kind.sea"
done

echo "## log: 10^6 events"
if [ ! -e log.sea ]; then
  python3 "$measures/2026-11-23-plain-checkers/logs.py" 1000000 log.edn
  "$seatrial" import log.edn -o log.sea >/dev/null 2>&1
  rm -f log.edn
fi
measure "seatrial  stats alone" "$seatrial" check --quiet --checker stats log.sea
measure "seatrial  log" "$seatrial" check --quiet --checker log log.sea

if [ -n "${FARM:-}" ]; then
  echo "## 21: against all orders, ${HISTORIES:=100000} histories of each type"
  export SEATRIAL_HISTORIES=$HISTORIES SEATRIAL_SEEDS=$HISTORIES
  for crate in monitors linear data-models consistency; do
    (cd "$here/../../.." && cargo test --quiet -p "seatrial-$crate" --lib 2>&1 | grep -E '^test result|FAILED|panicked')
  done
fi
