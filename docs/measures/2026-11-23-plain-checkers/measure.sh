#!/bin/sh
# measure.sh SEATRIAL FOLDER > raw.csv: what all plain checkers take in one pass; histories are made in FOLDER, which must exist.
# Rows: checkers, history, wall seconds, user seconds, system seconds, resident KiB at most, load average before.
set -e
seatrial=$1 folder=$2
here=$(dirname "$0")
plain=stats,unhandled-exceptions,availability,clock-plot,set,set-full,queue,total-queue,unique-ids,counter,bank
plain=$plain,long-fork,monotonic,lock,log

[ -e "$folder/queue.sea" ] || "$seatrial" generate queue --events 10000000 -o "$folder/queue.sea" > /dev/null
[ -e "$folder/set.sea" ] || "$seatrial" generate set --events 10000000 -o "$folder/set.sea" > /dev/null
for events in 100000 1000000; do
    [ -e "$folder/log-$events.sea" ] && continue
    python3 "$here/logs.py" $events "$folder/log.edn"
    "$seatrial" import "$folder/log.edn" -o "$folder/log-$events.sea" > /dev/null
    rm "$folder/log.edn"
done

row() {
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    /usr/bin/time -f "$1,$2,%e,%U,%S,%M,$load" -o "$folder/time" \
        "$seatrial" check --quiet --checker "$1" "$folder/$2.sea" > /dev/null 2>&1 || true
    tail -1 "$folder/time" | tr -d ' '
}

echo "checkers,history,wall_s,user_s,system_s,KiB,load"
for run in 1 2 3; do
    row stats queue
    row $plain queue
    row stats set
    row $plain set
    row stats log-1000000
    row log log-100000
    row log log-1000000
done
