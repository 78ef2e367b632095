#!/usr/bin/env bash
# `compare.sh FOLDER OLD NEW [RUNS]`: two binaries of seatrial on the same histories, in turns, since other programs may run beside them:
# processor seconds and peak memory of each run, then the medians. Makes the histories in FOLDER (4 GB) with NEW. Needs GNU time.
set -euo pipefail
folder=${1:?usage: compare.sh FOLDER OLD NEW [RUNS]} old=$2 new=$3 runs=${4:-5}
mkdir -p "$folder"

make() { # NAME OPTIONS...
  local name=$1
  shift
  [ -e "$folder/$name" ] || "$new" generate "$@" --quiet -o "$folder/$name"
}
make l6.sea list-append --ops 2000000
make l7.sea list-append --ops 20000000
make r12.sea rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths \
  --ops 64000 --concurrency 20 --keys 10000 --read-before-write
for kind in jsonl edn; do
  [ -e "$folder/l6.$kind" ] || "$new" export --quiet --to $kind "$folder/l6.sea" -o "$folder/l6.$kind"
done
make w7.plume rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths \
  --to plume --ops 2500000 --concurrency 50 --keys 200000

raw=$folder/compare.txt
: >"$raw"
# row NAME FILE OPTIONS...
row() {
  local name=$1 file=$folder/$2 side binary
  shift 2
  for _ in $(seq "$runs"); do
    for side in old new; do
      binary=$old
      [ $side = old ] || binary=$new
      /usr/bin/time -q -f "$name $side %U %S %M" -a -o "$raw" "$binary" check --quiet "$@" "$file" >/dev/null || true
    done
  done
}
row lists-1e6 l6.sea --checker list-append
row lists-1e7 l7.sea --checker list-append
row lists-1e6-jsonl l6.jsonl --checker list-append
row lists-1e6-edn l6.edn --checker list-append
row row-12 r12.sea --checker isolation --model serializable
row weak-plume w7.plume --format plume --checker isolation --model axiomatic-read-committed

echo "| history | old: processor s, MB | new: processor s, MB |"
echo "| --- | --- | --- |"
median() { # NAME SIDE
  grep "^$1 $2 " "$raw" | awk '{ print $3 + $4, $5 / 1024 }' | sort -n |
    awk '{ s[NR] = $1; if ($2 > m) m = $2 } END { printf "%.2f, %.0f", s[int((NR + 1) / 2)], m }'
}
for name in $(cut -d' ' -f1 "$raw" | awk '!seen[$0]++'); do
  echo "| $name | $(median "$name" old) | $(median "$name" new) |"
done
