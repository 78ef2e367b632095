#!/usr/bin/env bash
# From `git clone` to a verdict on one's own Redis: first.sh REPOSITORY FOLDER. Crates are in cargo's registry already.
set -e
mkdir "$2" && cd "$2"
began=$SECONDS
git clone -q "$1" seatrial && cd seatrial
cargo build --profile quick 2>&1 | tail -1
echo "built after $((SECONDS - began)) s"
cd .. && PATH="$PWD/seatrial/target/quick:$PATH"
seatrial init redis > my-system.toml
seatrial test my-system.toml | tail -4
echo "verdict after $((SECONDS - began)) s"
