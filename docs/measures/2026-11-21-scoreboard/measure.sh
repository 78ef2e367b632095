#!/usr/bin/env bash
# Rows 1 to 14 and 20 of the scoreboard: `measure.sh FOLDER [ROW...]`, from the workspace. Makes the histories with `seatrial generate`
# (in FOLDER; 5 GB for all of it), judges each and a twin with something wrong at nine tenths, writes the certificate of each and
# verifies it, and prints a table. Needs cargo and nothing else; with GNU time it tells memory as well.
#
# A row that was measured is kept in FOLDER/rows and printed again, unless it is named: so it can be stopped and goes on.
# SEATRIAL=BINARY measures that one instead of building. ADYA=no leaves the other checker out, which else is installed into FOLDER.
# RUNS is how often each small history is judged (5); LIMIT the seconds that one judgement may take, its verification, or the other checker (300).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: measure.sh FOLDER [ROW...]}
shift
mkdir -p "$folder/rows"
folder=$(cd "$folder" && pwd)
wanted=("$@")
runs=${RUNS:-5} limit=${LIMIT:-300}
program=${SEATRIAL:-${CARGO_TARGET_DIR:-target}/release/seatrial}
[ -n "${SEATRIAL:-}" ] || cargo build --quiet --release --bin seatrial
out=$folder/rows/partial

# timed COMMAND...: seconds of processor time and peak kilobytes, then the exit status. What the command says goes to
# FOLDER/said.txt.
timed() {
  local status=0
  if [ -x /usr/bin/time ]; then
    /usr/bin/time -q -f '%U %S %M' -o "$folder/time.txt" "$@" >"$folder/said.txt" 2>&1 || status=$?
    tail -1 "$folder/time.txt" | awk -v status=$status '{ printf "%.2f %d %d\n", $1 + $2, $3, status }'
  else
    local TIMEFORMAT='%U %S'
    { time "$@" >"$folder/said.txt" 2>&1 || echo $? >"$folder/status.txt"; } 2>"$folder/time.txt"
    [ ! -s "$folder/status.txt" ] || status=$(cat "$folder/status.txt")
    rm -f "$folder/status.txt"
    awk -v status=$status '{ printf "%.2f 0 %d\n", $1 + $2, status }' "$folder/time.txt"
  fi
}

# median COUNT COMMAND...: the same of so many runs: the middle time, the largest memory.
median() {
  local count=$1 all
  shift
  all=$(for _ in $(seq "$count"); do timed "$@"; done)
  echo "$(sort -n <<<"$all" | sed -n "$(((count + 1) / 2))p" | cut -d' ' -f1)" \
    "$(sort -n -k2 <<<"$all" | tail -1 | cut -d' ' -f2-)"
}

megabytes() { [ "$1" -eq 0 ] && echo "?" || echo $((($1 + 512) / 1024)); }
word() { case $1 in 0) echo valid ;; 1) echo invalid ;; 2) echo unknown ;; 124 | 137) echo "none in $limit s" ;; *) echo "error $1" ;; esac; }

# make NAME OPTIONS...: FOLDER/NAME, if it is not there.
make() {
  local name=$1
  shift
  [ -e "$folder/$name" ] && return
  "$program" generate "$@" --quiet -o "$folder/unfinished-$name"
  mv "$folder/unfinished-$name" "$folder/$name"
}

# proven NAME OPTIONS...: what the certificate is like and whether it holds.
proven() {
  local file=$folder/$1 proof=$folder/proof.json seconds memory status
  shift
  rm -f "$proof"
  "$program" check --quiet "$@" --certificate "$proof" "$file" >"$folder/said.txt" 2>&1 || true
  [ -s "$proof" ] || { echo "none"; return; }
  read -r seconds memory status < <(timed timeout "$limit" "$program" check --verify "$proof" "${format[@]}" "$file")
  local size=$((($(wc -c <"$proof") + 1023) / 1024)) holds="$seconds s, $(megabytes "$memory") MB"
  case $status in
    0) echo "$size kB, holds ($holds)" ;;
    124 | 137) echo "$size kB, verifier: no answer in $limit s" ;;
    *) echo "$size kB, **not verified**: $(tail -1 "$folder/said.txt" | tr '|' '/')" ;;
  esac
}

# line WHAT NAME TARGET PEER COUNT OPTIONS...: judges a history so often, and its certificate.
line() {
  local what=$1 name=$2 target=$3 peer=$4 count=$5 seconds memory status
  shift 5
  format=()
  case $name in
    *.plume) format=(--format plume) ;;
    *.dbcop) format=(--format dbcop) ;;
    *.timekiller) format=(--format timekiller) ;;
  esac
  read -r seconds memory status < <(median "$count" timeout "$limit" "$program" check --quiet "${format[@]}" "$@" "$folder/$name")
  echo "| $row | $what | $(word "$status") | $seconds | $(megabytes "$memory") | $target | $peer | $(proven "$name" "${format[@]}" "$@") |" >>"$out"
}

# both WHAT NAME ANOMALY TARGET PEER COUNT CHECK OPTIONS...: a history that `generate OPTIONS` makes, and its twin with that
# anomaly. CHECK are the options of `check`, in one word.
both() {
  local what=$1 name=$2 anomaly=$3 target=$4 peer=$5 count=$6 check=$7
  local twin=${name%.*}-$anomaly.${name##*.}
  shift 7
  make "$name" "$@"
  # shellcheck disable=SC2086 # options in one word
  line "$what" "$name" "$target" "$peer" "$count" $check
  # The store of the twin is as strict as can be but for the anomaly.
  local words=("$@") place
  for place in "${!words[@]}"; do
    [[ ${words[place]} != --isolation=* ]] || unset "words[place]"
  done
  make "$twin" "${words[@]}" --anomaly "$anomaly" --anomaly-at 0.9
  # shellcheck disable=SC2086
  line "$what, $anomaly at 90 %" "$twin" "" "" "$count" $check
}

# The families. Events are 8 to a transaction on the mean, operations two.
registers=(rw-register --fail 0 --info 0 --distribution uniform --writes-per-key 1000000000 --txn-length 1..15 --even-lengths)
w() { # EVENTS SESSIONS KEYS
  echo "${registers[@]}" --to plume --ops $(($1 / 4)) --concurrency "$2" --keys "$3"
}
b() { # TRANSACTIONS KEYS OPTIONS...
  local count=$1 keys=$2
  shift 2
  echo "${registers[@]}" --ops $((2 * count)) --concurrency 20 --keys "$keys" "$@"
}

weak() { # MODEL NAME EVENTS SESSIONS KEYS TARGET PEER COUNT
  # shellcheck disable=SC2046
  both "W $2, $1" "w-$2.plume" non-monotonic-read "$6" "$7" "$8" "--checker isolation --model $1" $(w "$3" "$4" "$5")
}
list() { # NAME TRANSACTIONS TARGET PEER COUNT OPTIONS...
  local name=$1 count=$2 target=$3 peer=$4 times=$5
  shift 5
  both "L $name, strict serializable" "l-$name.sea" G2-item "$target" "$peer" "$times" "--checker list-append" \
    list-append --ops $((2 * count)) "$@"
}
decided() { # MODEL NAME TRANSACTIONS KEYS ANOMALY TARGET PEER COUNT OPTIONS...
  local model=$1 name=$2 count=$3 keys=$4 anomaly=$5 target=$6 peer=$7 times=$8
  shift 8
  # shellcheck disable=SC2046
  both "$name, $model" "${name// /-}.sea" "$anomaly" "$target" "$peer" "$times" "--checker isolation --model $model" \
    $(b "$count" "$keys" "$@")
}

# beside WHAT NAME OPTIONS...: the other checker on the same history as EDN, and ours on that.
beside() {
  local what=$1 name=$2 seconds memory status
  shift 2
  [ "${ADYA:-yes}" != no ] || return 0
  if [ ! -x "$folder/adya/bin/adya" ]; then
    cargo install --quiet --locked --root "$folder/adya" adya --version 0.1.0 || return 0
  fi
  [ -e "$folder/$name.edn" ] || "$program" export --quiet --out "$folder/$name.edn" "$folder/$name.sea"
  read -r seconds memory status < <(timed timeout "$limit" "$folder/adya/bin/adya" "$@" "$folder/$name.edn")
  echo "| $row | $what: adya 0.1.0, EDN | $(word "$status") | $seconds | $(megabytes "$memory") | | same minutes | |" >>"$out"
  read -r seconds memory status < <(timed "$program" check --quiet --checker "$checker" "${inferred[@]}" "$folder/$name.edn")
  echo "| $row | $what: Seatrial, the same EDN | $(word "$status") | $seconds | $(megabytes "$memory") | | | |" >>"$out"
}

row_1() {
  weak axiomatic-read-committed 1e6 1000000 50 20000 "0.20 s, 60 MB" "AWDIT 0.451 s, 105 MB" "$runs"
  weak axiomatic-read-committed 1e7 10000000 50 200000 "2.5 s, 500 MB" "AWDIT 7.05 s, 892 MB" 1
}
row_2() {
  weak axiomatic-read-atomic 1e6 1000000 50 20000 "0.30 s" "AWDIT 0.675 s, 152 MB" "$runs"
  weak axiomatic-read-atomic 1e7 10000000 50 200000 "3.5 s, 700 MB" "AWDIT 9.70 s, 1,491 MB" 1
}
row_3() {
  weak causal 1e6 1000000 50 20000 "1.2 s, 250 MB" "AWDIT 2.70 s, 650 MB" "$runs"
  weak causal 3e6 3000000 50 60000 "4 s" "AWDIT 9.8 to 11.7 s, 1,938 MB" 3
  weak causal 1e7 10000000 50 200000 "15 s, 2.5 GB" "AWDIT: not run, would pass 6 GB" 1
}
row_4() {
  weak causal 1e5-318 100000 318 2000 "0.2 s, 60 MB" "AWDIT 0.476 s, 278 MB (its generator)" "$runs"
}
row_5() {
  list 1e5 100000 "0.2 s, 40 MB" "adya 2.80 s, 580 MB; Elle 7 to 17 s, 3.8 GB" "$runs"
  checker=list-append inferred=()
  beside "L 1e5" l-1e5 check --model list-append --consistency-models strict-serializable
}
row_6() {
  list 1e6 1000000 "0.6 s, 200 MB" "adya > 5.5 GB" "$runs"
  list 1e7 10000000 "6 s, 1.5 GB" "Elle: not possible" 1
}
row_7() {
  list 1e5-1000-clients 100000 "1.3 times row 5" "not measured" "$runs" --concurrency 1000 --info 0.05
}
row_8() {
  both "B 32,000, rw-register, nothing inferred" B-32000.sea G-single "0.1 s" "adya 0.87 s, 217 MB; Elle 3.9 to 9.5 s" "$runs" \
    "--checker rw-register" $(b 32000 10000)
  checker=rw-register inferred=()
  beside "B 32,000" B-32000 check --model rw-register --consistency-models strict-serializable
}
row_9() {
  local peer=("adya 0.87 s; Elle 9 to 14 s, 4 GB" "adya > 120 s; Elle > 500 s" "no answer at 8,000")
  local target=("0.01 s" "0.05 s" "5 s") place=0 count
  for count in 1000 8000 1000000; do
    both "B $count, rw-register, linearizable keys" "B-$count.sea" stale-read "${target[place]}" "${peer[place]}" \
      $((count > 100000 ? 1 : runs)) "--checker rw-register --infer linearizable-keys" $(b $count 10000)
    place=$((place + 1))
  done
  checker=rw-register inferred=(--infer linearizable-keys)
  beside "B 1,000, linearizable keys" B-1000 check --model rw-register --linearizable-keys --consistency-models strict-serializable
}
row_10() {
  decided serializable "B 4000" 4000 10000 G2-item "0.02 s" "VeriStrong 0.98 s" "$runs"
  decided serializable "B 16000" 16000 10000 G2-item "0.1 s" "VeriStrong 17.5 s, 1.2 GB" "$runs"
  decided serializable "B 32000" 32000 10000 G2-item "0.2 s" "VeriStrong > 150 s" "$runs"
  decided serializable "B 100000" 100000 10000 G2-item "0.5 s" "" "$runs"
  decided serializable "B 1000000" 1000000 10000 G2-item "5 s, 1 GB" "" 1
  # High contention.
  local keys
  for keys in 10 40; do
    decided serializable "B 4000 $keys keys" 4000 $keys G2-item "VeriStrong's" "" "$runs"
    decided serializable "B 16000 $keys keys" 16000 $keys G2-item "VeriStrong's" "" 3
  done
}
row_11() {
  decided snapshot-isolation "B 4000" 4000 10000 lost-update "0.02 s" "VeriStrong 1.1 to 1.4 s; PolySI 9.4 s" "$runs"
  decided snapshot-isolation "B 8000" 8000 10000 lost-update "0.05 s" "VeriStrong 7.4 s; PolySI 27.9 s" "$runs"
  decided snapshot-isolation "B 16000" 16000 10000 lost-update "0.1 s" "VeriStrong 43.6 s" "$runs"
  decided snapshot-isolation "B 1000000" 1000000 10000 lost-update "5 s" "" 1
  local keys
  for keys in 10 40; do
    decided snapshot-isolation "B 4000 $keys keys" 4000 $keys lost-update "VeriStrong's" "" "$runs"
    decided snapshot-isolation "B 16000 $keys keys" 16000 $keys lost-update "VeriStrong's" "" 3
  done
  # shellcheck disable=SC2046
  ordered "B 16000 10 keys, snapshot-isolation" b-ordered 3 $(b 16000 10)
}
# ordered WHAT NAME COUNT OPTIONS...: a history whose database said in which order it committed, judged without and with that.
ordered() {
  local what=$1 name=$2 count=$3 seconds memory status
  shift 3
  make "$name.sea" "$@" --timestamps
  # The index of each completion, and its commit stamp as one number.
  if [ ! -e "$folder/$name.json" ]; then
    "$program" show --edn "$folder/$name.sea" |
      sed -n 's/.*:index \([0-9]*\).*:commit-stamp \[\([0-9]*\) \([0-9]*\)\].*/"\1": \2\3,/p' |
      sed '1s/^/{/; $s/,$/}/' >"$folder/$name.json"
  fi
  line "$what" "$name.sea" "" "" "$count" --checker isolation --model snapshot-isolation
  line "$what, the database's order given" "$name.sea" "" "" "$count" --checker isolation --model snapshot-isolation \
    --transaction-order "$folder/$name.json"
}

row_12() {
  decided serializable "R 32000" 32000 10000 G2-item "0.15 s, 30 MB" "VeriStrong 58.1 s, 2.0 GB; adya (wfr) 1.81 s, 288 MB" "$runs" \
    --read-before-write
  decided snapshot-isolation "R 32000" 32000 10000 lost-update "0.15 s, 30 MB" "VeriStrong > 150 s" "$runs" --read-before-write
  checker=rw-register inferred=(--infer wfr-keys)
  beside "R 32,000" R-32000 check --model rw-register --wfr-keys --consistency-models serializable
}
row_13() {
  echo "| 13 | published histories (PolySI figure 7, VeriStrong figures 10 to 12, chengRW-16000) | | | | VeriStrong 64.4 s, 2.1 GB (the last) | | no registry has them: see README.md |" >>"$out"
}
row_14() {
  local count target=("0.5 s, 60 MB" "5 s, 400 MB") peer=("Chronos 3.39 s, 753 MB" "Chronos 31 to 34 s, 4.7 GB") place=0
  for count in 100000 1000000; do
    both "T $count, SI by timestamps" "t-$count.timekiller" G-single "${target[place]}" "${peer[place]}" \
      $((count > 100000 ? 1 : runs)) "--checker timestamps --model snapshot-isolation" \
      "${registers[@]}" --isolation=strong-snapshot-isolation --to timekiller --ops $((2 * count)) --concurrency 20 --keys 10000
    place=$((place + 1))
  done
}
row_19() {
  if [ -x "$here/online.sh" ]; then "$here/online.sh" "$program" "$folder" >>"$out"; fi
}
row_20() {
  local passed
  passed=$(cargo test --quiet -p seatrial-inference --test all elle 2>&1 | grep -o '[0-9]* passed.*failed' | tail -1)
  echo "| 20 | cases of elle-cli: \`cargo test -p seatrial-inference --test all elle\` | $passed | | | all verdicts, anomalies, models | adya 56 of 56 | |" >>"$out"
}

for row in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 19 20; do
  if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $row "* ]]; then continue; fi
  if [ ${#wanted[@]} -gt 0 ] || [ ! -e "$folder/rows/$row.md" ]; then
    : >"$out"
    echo "row $row, load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo '?')" >&2
    "row_$row"
    mv "$out" "$folder/rows/$row.md"
  fi
done
echo "| row | history | verdict | processor s | peak MB | target | others, not from these minutes | certificate: size, verified (processor time, memory) |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for row in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 19 20; do
  if [ -e "$folder/rows/$row.md" ]; then cat "$folder/rows/$row.md"; fi
done
