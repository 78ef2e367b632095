#!/usr/bin/env bash
# Small test files against the same history in EDN, and `show --count 1`.
#   measure.sh FOLDER SEATRIAL...     each SEATRIAL is a program to measure, such as that of main and that of a branch
set -eu
folder=$1; shift
mkdir -p "$folder"
for workload in list-append rw-register set queue; do
    sea=$folder/$workload.sea edn=$folder/$workload.edn
    [ -e "$sea" ] || "$1" generate "$workload" --ops 200000 -o "$sea" >/dev/null
    [ -e "$edn" ] || "$1" export "$sea" -o "$edn" -q
done
for program in "$@"; do
    for workload in list-append rw-register set queue; do
        for file in "$folder/$workload.sea" "$folder/$workload.edn"; do
            echo "== $program check $(basename "$file")"
            farm-bench -n 5 --timeout 60 -- "$program" check -q "$file" || true
        done
    done
    for workload in list-append rw-register; do
        echo "== $program show --count 1 $workload.sea"
        farm-bench -n 20 --timeout 60 -- "$program" show --count 1 "$folder/$workload.sea" || true
    done
done
