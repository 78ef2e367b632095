"""Reads a Parquet file with engines that are not ours: read_back.py FILE, made from tests/data/jepsen/version-1.jepsen.

Does nothing, and says why, where DuckDB is not installed.
"""

import sys

try:
    import duckdb
except ImportError:
    print("skipped: DuckDB for Python is not installed")
    sys.exit(0)

table = duckdb.sql(f"select * from '{sys.argv[1]}' order by index")
names = "index time type process process_name f key value value_int txn error node extra invocation latency_ns"
assert table.columns == names.split(), table.columns
rows = [dict(zip(table.columns, row)) for row in table.fetchall()]
assert [row["index"] for row in rows] == list(range(8))
assert [row["type"] for row in rows[:4]] == ["invoke", "info", "invoke", "ok"]
assert rows[1]["process"] is None and rows[1]["process_name"] == "nemesis" and rows[1]["value"] is None
assert rows[4]["value"] == '[["n1","killed"],["n2","killed"]]', rows[4]["value"]
read = rows[3]["txn"][1]
assert (read["f"], read["key"], read["value"], read["read"]) == ("r", "3", None, [1, 2, 300, 70000]), read
assert rows[3]["txn"][2]["read"] == [] and rows[0]["txn"][1]["read"] is None
assert rows[3]["invocation"] == 0 and rows[3]["latency_ns"] == 6_123_456_789 - 4_710
assert rows[0]["invocation"] is None and rows[4]["invocation"] == 1
assert rows[5]["error"] == '["timeout","no answer"]' and rows[5]["node"] == "n1"
assert rows[7]["error"] == "not-found" and rows[7]["value"] == "[1,2]"
print(f"{len(rows)} rows read by DuckDB {duckdb.__version__}")
