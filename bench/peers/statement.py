"""One UPDATE and one DELETE over a million documents beside small writes: how long each takes, and what the small writes notice.

    python3 bench/peers/statement.py target/release/sapsan [DOCUMENTS]

Four clients PATCH a random document every 4 ms each, alone for five seconds, then beside each statement, and in between. Prints
quantiles of their replies' times. The data has two indexes and a view, so a statement changes about five entries for each document.
"""

import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = """
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["place", "mark"], ["mark"]]
[views.by_place]
query = "SELECT place, COUNT(*) AS n, SUM(mark) AS marks FROM items GROUP BY place"
[server]
http = "127.0.0.1:%d"
"""
CLIENTS = 4
PERIOD = 0.004


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load:
    """Clients, and how long their replies took in each phase."""

    def __init__(self, port, documents):
        self.port, self.documents = port, documents
        self.times, self.lock, self.phase, self.is_over = [], threading.Lock(), "alone", False

    def client(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        while not self.is_over:
            target = f"/_/collections/items/{random.randrange(self.documents)}"
            phase, began = self.phase, time.perf_counter()
            connection.request("PATCH", target, json.dumps({"adds": random.randrange(100)}))
            reply = connection.getresponse()
            reply.read()
            took = time.perf_counter() - began
            if reply.status not in (200, 404):
                raise SystemExit(f"{target}: {reply.status}")
            with self.lock:
                self.times.append((phase, took))
            time.sleep(max(0, PERIOD - took))

    def told(self, phase):
        times = sorted(took for of, took in self.times if of == phase)
        at = lambda share: 1000 * times[min(len(times) - 1, int(len(times) * share))]
        return f"{len(times)} writes, p50 {at(0.5):.2f}, p99 {at(0.99):.2f}, longest {at(1):.1f} ms", at(0.99)


def ask(port, sql):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    connection.request("POST", "/_/query", json.dumps({"sql": sql}))
    body = connection.getresponse().read().decode()
    return time.perf_counter() - began, body


def main():
    sapsan, documents = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    folder, port = pathlib.Path(tempfile.mkdtemp()), free_port()
    (folder / "s.toml").write_text(CONFIG % port)
    with open(folder / "items.ndjson", "w") as lines:
        for i in range(documents):
            item = {"id": i, "place": i % 1000, "mark": i % 7, "adds": 0, "note": f"some words about item number {i}"}
            lines.write(json.dumps(item) + "\n")
    data = ["--data", str(folder / "data")]
    import_ = [sapsan, "import", str(folder / "s.toml"), *data, "--collection", "items", str(folder / "items.ndjson")]
    subprocess.run(import_, check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen([sapsan, "serve", str(folder / "s.toml"), *data], stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    load = Load(port, documents)
    clients = [threading.Thread(target=load.client, daemon=True) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(5)
    for sql in ["UPDATE items SET mark = mark + 1", f"DELETE FROM items WHERE id >= {documents // 2}"]:
        load.phase = sql
        took, body = ask(port, sql)
        load.phase = "between"
        time.sleep(5)
        (told, p99), (_, alone) = load.told(sql), load.told("alone")
        print(f"{sql}: {took:.2f} s, {body}; beside it {told}: {p99 / alone:.1f} x the p99 alone")
    load.is_over = True
    for client in clients:
        client.join()
    print("alone:", load.told("alone")[0])
    print("between:", load.told("between")[0])
    sums = [ask(port, f"SELECT SUM({n}) AS n, SUM({m}) AS marks FROM {of}")[1] for n, m, of in [("1", "mark", "items"), ("n", "marks", "by_place")]]
    print("the view equals its query:", sums[0] == sums[1], sums[0])
    server.terminate()
    server.wait()


main()
