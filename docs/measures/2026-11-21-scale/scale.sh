#!/usr/bin/env bash
# Writes a list-append history and asks it questions; prints what each took. From the root of the repository:
#   docs/measures/2026-11-21-scale/scale.sh OPERATIONS FOLDER [CODEC]
# 100000000 operations take some minutes and 1.8 GB with LZ4; 1000000000 take about ten times that, 13.2 GB with zstd.
set -euo pipefail
operations=$1 folder=$2 codec=${3:-lz4}
cargo build --release --quiet
seatrial=$PWD/target/release/seatrial
file=$folder/$operations-$codec.sea
mkdir -p "$folder"

# Runs a command; prints its wall time, processor time of all threads, and what it said.
measure() {
    local name=$1
    shift
    echo "== $name: seatrial $*"
    TIMEFORMAT="   %R s wall, %U s user, %S s system"
    time "$seatrial" "$@" 2>&1 | sed 's/^/   /'
}

echo "# $(date -u +%FT%TZ), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
[ -e "$file" ] || measure "generate and write" generate list-append --ops "$operations" --codec "$codec" --seed 1 -o "$file"
ls -l "$file" | awk -v n="$operations" '{ printf "   %.0f bytes, %.2f an operation\n", $5, $5 / n }'
for threads in 1 2; do
    measure "count by outcome, $threads threads" check --checker stats --threads $threads -v -q "$file"
    measure "G1a, G1b, internal, future read, garbage read, $threads threads" check --checker g1 --threads $threads -v -q "$file"
done
measure "both in one pass" check --checker stats,g1 -v -q "$file"
measure "open, then one random operation, page cache warm" bench open --file "$file" --runs 11
measure "the same, page cache told to forget the file" bench open --file "$file" --runs 11 --cold
