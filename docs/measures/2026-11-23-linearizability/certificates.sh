#!/usr/bin/env bash
# Certificates of linearizability: certificates.sh SEATRIAL FOLDER > certificates.txt
#
# Histories of 10^6 operations: the check alone, the check with a certificate (which is replayed before it is kept), and the
# replay alone. Each line: processor seconds (user and system, whole process), memory, exit status, verdict. Needs Python.
set -u
seatrial=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2" && cd "$2" || exit 1

measure() { # NAME WORDS...
  local name=$1 status=0
  shift
  /usr/bin/time -o time.txt -f '%U %S %M' timeout 180 "$@" >out.txt 2>&1 || status=$?
  tail -1 time.txt | awk -v name="$name" -v status="$status" '{ printf "%-52s %6.2f s %5d MB   exit %s   ", name, $1 + $2, $3 / 1000, status }'
  grep -m1 -E '✓|✗|\? unknown|accepted|holds|proven|replayed' out.txt | cut -c1-100
}

both() { # NAME FILE CHECKER
  measure "$1" "$seatrial" check "$2" --checker "$3"
  measure "  with a certificate" "$seatrial" check "$2" --checker "$3" --certificate proof.json
  [ -e proof.json ] && measure "  its replay, $(($(stat -c %s proof.json) / 1000)) kB" "$seatrial" check "$2" --verify proof.json
  rm -f proof.json
}

echo "# $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
"$seatrial" generate register --events 2000000 --keys 1 --concurrency 32 --out u.sea >/dev/null 2>&1
both "register, unique values, 32 clients" u.sea cas-register
python3 "$here/histories.py" cas 100000 8 1 >c.edn
"$seatrial" import c.edn --out c.sea >/dev/null 2>&1
both "register, five values, 10^5 operations, 8 clients" c.sea cas-register
for kind in fifo-queue stack priority-queue bag; do
  for wrong in "" wrong; do
    python3 "$here/histories.py" $kind 1000000 8 1 $wrong >q.edn
    "$seatrial" import q.edn --out q.sea >/dev/null 2>&1
    both "$kind, 8 clients $wrong" q.sea $kind
    rm -f q.edn q.sea
  done
done
