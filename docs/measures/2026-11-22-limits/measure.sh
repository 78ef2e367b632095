#!/usr/bin/env bash
# `measure.sh FOLDER OLD NEW`: two binaries of seatrial on histories that used to take too much memory: user and system seconds, elapsed seconds, peak
# memory. Makes the histories in FOLDER (3 GB) with NEW. Needs GNU time and Python.
set -euo pipefail
folder=${1:?usage: measure.sh FOLDER OLD NEW} old=$2 new=$3
here=$(dirname "$0")
mkdir -p "$folder"

row() { # NAME OPTIONS...
  local name=$1 binary line
  shift
  for binary in "$old" "$new"; do
    line=$( { /usr/bin/time -f "%U s user, %S s system, %e s, %M kB" "$binary" check -q "$@" >/dev/null; } 2>&1 | tail -1)
    echo "$name: $binary: $line"
  done
}

# Verifying: 10^7 transactions on lists.
[ -e "$folder/l7.sea" ] || "$new" generate list-append --events 20000000 -q -o "$folder/l7.sea"
row "certificate of 10^7" "$folder/l7.sea" --checker list-append --certificate "$folder/l7.json"
row "verification of 10^7" "$folder/l7.sea" --verify "$folder/l7.json"

# Late reads: 5 * 10^6 transactions on lists with short lists.
if [ ! -e "$folder/all.sea" ]; then
  "$new" generate list-append --events 10000000 --writes-per-key 16..32 --fail 0 --info 0 -q -o "$folder/none.sea"
  "$new" export "$folder/none.sea" --to edn -q >"$folder/none.edn"
  python3 "$here/late.py" "$folder/none.edn" "$folder/one.edn" "$folder/all.edn"
  for late in one all; do
    cat "$folder/none.edn" "$folder/$late.edn" | "$new" import - -q -o "$folder/$late.sea"
  done
  rm "$folder/none.edn"
fi
for late in none one all; do
  row "late reads: $late" "$folder/$late.sea" --checker list-append
done

# Keys that are searched one after another, the last one larger.
python3 "$here/appends.py" 1000 100000 >"$folder/appends.edn"
row "1,001 keys of a map" "$folder/appends.edn" --checker kv-map --keyed
[ -e "$folder/registers.sea" ] || "$new" generate register --events 2000000 --concurrency 20 -q -o "$folder/registers.sea"
row "registers" "$folder/registers.sea"
[ -e "$folder/stale.sea" ] || "$new" generate register --events 2000000 --concurrency 20 --anomaly stale-read --anomaly-rate 0.0005 -q -o "$folder/stale.sea"
row "registers, 489 of 4,131 keys broken" "$folder/stale.sea"
