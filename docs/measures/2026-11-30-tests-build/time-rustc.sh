#!/bin/bash
# For RUSTC_WRAPPER: appends user and system seconds, wall time, crate, kind and "test" of each unit to $RWLOG.
name=- ; kind=-; test=
prev=
for a in "$@"; do
  [ "$prev" = --crate-name ] && name=$a
  [ "$prev" = --crate-type ] && kind=$a
  [ "$a" = --test ] && test=test
  prev=$a
done
exec /usr/bin/time -a -o "$RWLOG" -f "%U %S %e $name $kind $test" "$@"
