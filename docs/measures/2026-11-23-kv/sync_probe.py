"""Latency of 4 KiB appends, each followed by fdatasync, in a new file of this folder."""
import os, sys, time
path = os.path.join(sys.argv[1], "sync-probe"); times = []
file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
end = time.time() + 5
while time.time() < end:
    began = time.perf_counter(); os.write(file, os.urandom(4096)); os.fdatasync(file)
    times.append(time.perf_counter() - began)
os.close(file); os.unlink(path); times.sort()
print(f"{len(times) / 5:.0f} syncs/s, p50 {times[len(times)//2]*1e3:.2f} ms, p99 {times[len(times)*99//100]*1e3:.2f} ms")
