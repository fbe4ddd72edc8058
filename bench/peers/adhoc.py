"""Registrations by month over generated users, asked of DuckDB (the NDJSON itself) and of SQLite (the JSON in a column).

    python3 adhoc.py USERS.ndjson THREADS ROUNDS

Prints a line `duckdb SECONDS…` and a line `sqlite SECONDS…`. DuckDB is told the one column that it needs: the quickest way it
has. What it takes to fill SQLite's table is not counted.
"""

import sqlite3
import sys
import time

import duckdb

path, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def timed(run):
    began = time.perf_counter()
    rows = run()
    return time.perf_counter() - began, len(rows)


def report(name, run):
    results = [timed(run) for _ in range(rounds)]
    print(name, *(f"{seconds:.4f}" for seconds, _ in results), flush=True)
    print("rows", results[0][1], flush=True)


duck = duckdb.connect()
duck.execute(f"SET threads = {threads}")
source = f"read_json('{path}', format = 'newline_delimited', columns = {{CreationDate: 'TIMESTAMP'}})"
by_month = f"SELECT strftime(CreationDate, '%Y-%m') AS month, COUNT(*) FROM {source} GROUP BY month"
report("duckdb", lambda: duck.execute(by_month).fetchall())

lite = sqlite3.connect(path + ".sqlite")
lite.execute("PRAGMA journal_mode = OFF")
lite.execute("PRAGMA synchronous = OFF")
lite.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, doc TEXT)")
with open(path, encoding="utf-8") as lines:
    lite.executemany("INSERT INTO users (doc) VALUES (?)", ((line.rstrip("\n"),) for line in lines))
lite.commit()
in_column = "SELECT strftime('%Y-%m', doc ->> '$.CreationDate') AS month, COUNT(*) FROM users GROUP BY month"
report("sqlite", lambda: lite.execute(in_column).fetchall())
