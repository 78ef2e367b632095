"""Record, replay, verify and copy of 1 GB by two binaries in turn; medians of wall and processor time.

Usage: measure.py OLD NEW ROUNDS, where OLD and NEW are release binaries of `seatrial`.
"""
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

BINARIES = {"old": sys.argv[1], "new": sys.argv[2]}
ROUNDS = int(sys.argv[3])
FOLDER = "/dev/shm/archive-tags"
INPUT = FOLDER + "/input"
LINES = 10_000_000


def run(words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with open(os.devnull, "wb") as nothing:
        subprocess.run(words, check=True, stdout=nothing, stderr=nothing)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


shutil.rmtree(FOLDER, ignore_errors=True)
os.makedirs(FOLDER)
with open(INPUT, "wb") as out:
    for start in range(0, LINES, 100_000):
        lines = (b"%099d\n" % number for number in range(start, start + 100_000))
        out.write(b"".join(lines))
found = {}
for round in range(ROUNDS):
    names = list(BINARIES)
    for name in names if round % 2 == 0 else names[::-1]:
        binary, archive = BINARIES[name], f"{FOLDER}/{name}"
        words = {
            "record": [binary, "archive", "record", archive, "--durability", "none", "--file", INPUT],
            "replay": [binary, "archive", "replay", archive, "1"],
            "verify": [binary, "archive", "verify", archive],
            "copy": [binary, "archive", "copy", archive, f"{FOLDER}/copy"],
        }
        for verb, line in words.items():
            found.setdefault((verb, name), []).append(run(line))
        shutil.rmtree(archive)
        shutil.rmtree(f"{FOLDER}/copy")
shutil.rmtree(FOLDER)
print("| verb | old wall | new wall | old cpu | new cpu | new / old cpu |\n| --- | ---: | ---: | ---: | ---: | ---: |")
for verb in ["record", "replay", "verify", "copy"]:
    old, new = found[verb, "old"], found[verb, "new"]
    wall = [statistics.median(one[0] for one in side) for side in (old, new)]
    cpu = [statistics.median(one[1] for one in side) for side in (old, new)]
    best = [min(one[1] for one in side) for side in (old, new)]
    print(f"| {verb} | {wall[0]:.3f} s | {wall[1]:.3f} s | {cpu[0]:.3f} s (least {best[0]:.3f}) "
          f"| {cpu[1]:.3f} s (least {best[1]:.3f}) | {cpu[1] / cpu[0]:.3f} |")
