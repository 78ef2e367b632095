"""Processor time of writing a file of 3,000 MiB by MiB, the first and the second time: pages.py FILE"""
import os
import sys
import time

MEBIBYTES = 3000
piece = os.urandom(1 << 20)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL)
for what in ("first", "second"):
    cpu, began = time.process_time(), time.monotonic()
    for at in range(MEBIBYTES):
        os.pwrite(file, piece, at << 20)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    print(f"{what}: {cpu * 1e3 / MEBIBYTES:.2f} ms of processor time a MiB, {MEBIBYTES / took:.0f} MiB/s")
os.close(file)
os.unlink(sys.argv[1])
