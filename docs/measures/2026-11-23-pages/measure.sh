#!/usr/bin/env bash
# Processor seconds and peak memory of checks with a page, findings and a certificate:
#   docs/measures/2026-11-23-pages/measure.sh FOLDER BINARY... > docs/measures/2026-11-23-pages/measure.txt
# Each option of each binary runs in turn, RUNS times (3 unless set); EVENTS (3,600,000) is the length of the history.
set -eu
folder=$1
shift
mkdir -p "$folder"
events=${EVENTS:-3600000}
history="$folder/lists-$events.sea"
[ -f "$history" ] || "$1" generate list-append --events "$events" -q -o "$history"
for run in $(seq "${RUNS:-3}"); do
    for options in "" "--report $folder/page.html" "--findings $folder/findings" "--certificate $folder/proof.json"; do
        for binary in "$@"; do
            rm -rf "$folder/findings"
            # The options are words.
            # shellcheck disable=SC2086
            /usr/bin/time -f "$run $(basename "$binary") ${options%% *}: %U s user, %S s system, %e s, %M KB" \
                "$binary" check -q $options "$history" 2>&1 | grep -v "valid"
        done
    done
done
