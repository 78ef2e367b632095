#!/usr/bin/env bash
# Contended histories of registers: 10 keys, 100,000 transactions, 20 and 1,000 clients, 10 % info, at three models.
# measure.sh FOLDER [SEATRIAL...]: histories go to FOLDER; each binary (default: the release build) checks each of them.
# LIMIT: processor seconds a check may take. Prints a line per check: history, model, verdict, processor s, peak MB.
set -eu
top=$(cd "$(dirname "$0")/../../.." && pwd)
folder=$1
shift
limit=${LIMIT:-20}
[ $# -gt 0 ] || set -- "$top/target/release/seatrial"
mkdir -p "$folder"

make() { # name, options
    local file="$folder/$1.sea"
    shift
    [ -f "$file" ] || "$maker" generate rw-register --ops 200000 --keys 10 --distribution uniform \
        --writes-per-key 1000000000 --seed 7 "$@" -q -o "$file"
}

check() { # binary, name, model
    local figures verdict
    figures=$(mktemp)
    verdict=$( (ulimit -t "$limit"; /usr/bin/time -f "%U %S %M" -o "$figures" \
        "$1" check "$folder/$2.sea" --checker isolation --model "$3" 2>&1) | grep -oE "✓|✗|unknown|\?" | head -1 || true)
    tail -1 "$figures" | awk -v name="$2" -v model="$3" -v verdict="${verdict:-no answer}" \
        '{ printf "| %s | %s | %s | %.2f | %d |\n", name, model, verdict, $1 + $2, $3 / 1024 }'
    rm -f "$figures"
}

maker=$1
for clients in 20 1000; do
    common="--concurrency $clients --info 0.1"
    # shellcheck disable=SC2086
    {
        make strict-$clients $common
        make serializable-$clients $common --isolation serializable
        make snapshots-$clients $common --isolation snapshot-isolation
        long="$common --txn-length 1..15 --even-lengths --fail 0"
        make serializable-long-$clients $long --isolation serializable
        make snapshots-long-$clients $long --isolation snapshot-isolation
        make prefix-$clients $common --isolation prefix
        make updates-$clients $common --read-before-write --isolation snapshot-isolation
        for anomaly in lost-update G-single G2-item G-nonadjacent; do
            make "$anomaly-$clients" $common --anomaly "$anomaly" --anomaly-at 0.9
        done
    }
done
for binary in "$@"; do
    echo "$("$binary" --version)"
    for clients in 20 1000; do
        for name in ${NAMES:-strict serializable snapshots serializable-long snapshots-long prefix updates lost-update G-single G2-item G-nonadjacent}; do
            for model in ${MODELS:-serializable snapshot-isolation parallel-snapshot-isolation}; do
                check "$binary" "$name-$clients" "$model"
            done
        done
    done
done
