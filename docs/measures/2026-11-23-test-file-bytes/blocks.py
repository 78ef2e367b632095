"""Counts the blocks of a test file by kind and codec: python3 blocks.py history.sea"""

import collections
import struct
import sys

KINDS = {1: "root", 16: "attributes", 17: "chunk", 18: "journal", 19: "directory", 20: "results", 21: "results part"}
CODECS = {0: "none", 1: "lz4", 2: "zstd"}

data = open(sys.argv[1], "rb").read()
count, length = collections.Counter(), collections.Counter()
at = 4096  # after the first page
while at + 32 <= len(data) and data[at : at + 4] == b"\x5e\xa1\xb1\x01":
    kind, flags, payload = struct.unpack_from("<HHI", data, at + 4)
    key = (KINDS.get(kind, str(kind)), CODECS[flags >> 4 & 15])
    size = (32 + payload + 7) // 8 * 8
    count[key] += 1
    length[key] += size
    at += size
for (kind, codec), blocks in count.items():
    print(f"{kind:<14} {codec:<5} {blocks:>8} blocks {length[kind, codec]:>12} bytes")
