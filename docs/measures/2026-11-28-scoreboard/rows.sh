#!/usr/bin/env bash
# rows.sh FOLDER OLD NEW: five rows of the scoreboard, seven runs of each binary in turn; least and median processor seconds, and the
# ratios. FOLDER has the histories of ../2026-11-22-scoreboard/pairs.sh.
set -euo pipefail
folder=$1 old=$2 new=$3

seconds() {
  /usr/bin/time -q -f '%U %S' -o "$folder/time.txt" "$@" >/dev/null 2>&1 || true
  tail -1 "$folder/time.txt" | awk '{ print $1 + $2 }'
}

row() { # WHAT WORDS...
  local what=$1
  shift
  for _ in 1 2 3 4 5 6 7; do
    echo "old $(seconds "$old" check --quiet "$@")"
    echo "new $(seconds "$new" check --quiet "$@")"
  done | sort -k1,1 -k2n | awk -v what="$what" '{ n[$1]++; v[$1, n[$1]] = $2 } END {
    printf "%s: least %.2f %.2f, ratio %.3f; median %.2f %.2f, ratio %.3f\n", what, v["old", 1], v["new", 1],
      v["new", 1] / v["old", 1], v["old", 4], v["new", 4], v["new", 4] / v["old", 4] }'
}

row "1, read committed, Plume" "$folder/w.plume" --checker isolation --model axiomatic-read-committed
row "2, read atomic, Plume" "$folder/w.plume" --checker isolation --model axiomatic-read-atomic
row "6, list-append, 10^6" "$folder/l-1e6.sea" --checker list-append
row "9, rw-register, 10^6" "$folder/b-1e6.sea" --checker rw-register --infer linearizable-keys
row "10, serializable, 10^6" "$folder/b-1e6.sea" --checker isolation --model serializable
