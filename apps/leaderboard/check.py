#!/usr/bin/env python3
"""Tests everything that README.md shows, and ends with an error at the first wrong answer.

    check.py SAPSAN [MATCHES]    # the program; makes and removes a folder of its own. 10,000 matches, or fewer
    check.py generate            # 200,000 scores as JSON on standard output, for `sapsan import`
    check.py follow URL          # prints new records of a running server as they happen
"""
import http.client, json, os, pathlib, random, signal, socket, subprocess, sys, tempfile, threading, time, urllib.parse

HERE = pathlib.Path(__file__).parent
PLAYERS, MATCHES, SEATS = 10_000, 10_000, 20


def generate(matches=MATCHES):
    """Two seasons, of which the first is closed, 20 scores for each match, and the resulting bests."""
    rnd = random.Random(1)
    players = [{"id": p, "name": f"player {p}", "country": rnd.choice(["DE", "FI", "FR", "JP", "SE"])} for p in range(1, PLAYERS + 1)]
    matches = [{"id": m, "season": 1 if m <= matches // 2 else 2} for m in range(1, matches + 1)]
    scores, bests = [], {}
    for match in matches:
        for player in rnd.sample(players, SEATS):
            m, p, season, score = match["id"], player["id"], match["season"], int(rnd.paretovariate(1.2) * 100)
            scores.append({"id": f"{m}:{p}", "match": m, "player": p, "season": season, "score": score, "at": 1_690_000_000 + m})
            best = bests.setdefault((season, p), {"id": f"{season}:{p}", "season": season, "player": p, "country": player["country"], "best": 0})
            best["best"] = max(best["best"], score)
    return {"seasons": [{"id": 1, "closes_at": 1_700_000_000}, {"id": 2, "closes_at": 4_000_000_000}],
            "players": players, "matches": matches, "scores": scores, "bests": list(bests.values())}


class Server:
    """One server; `ask` sends a request over a new connection."""

    all = []

    def __init__(self, sapsan, config, data, *more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        self.url = "http://" + self.address
        self.process = subprocess.Popen([sapsan, "serve", config, "--data", data, "--http", self.address, "--log", "warn", *more],
                                        stdout=subprocess.DEVNULL)
        Server.all.append(self.process)
        for _ in range(100):
            try:
                self.expect(200, "GET", "/_/health")
                return
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise SystemExit("the server does not answer")

    def ask(self, method, path, body=None, token=None, **fields):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        if token:
            fields["Authorization"] = "Bearer " + token
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read()), reply.headers

    def expect(self, status, *request, **fields):
        got, body, _ = self.ask(*request, **fields)
        assert got == status, f"{request}: {got} {body}, not {status}"
        return body

    def sql(self, text, **params):
        return self.expect(200, "POST", "/_/query", {"sql": text, "params": params})

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0


def follow(url, begun=None, found=None):
    """Prints each new record of a season. Resumes from its position after a restart of the server; ends if that position is too old."""
    address, since, lead = urllib.parse.urlsplit(url).netloc, "", None
    while True:
        try:
            feed = http.client.HTTPConnection(address, timeout=30)
            feed.request("GET", "/_/changes?collection=bests" + since)
            lines = feed.getresponse()
            if lines.status != 200:
                raise SystemExit(lines.read().decode())
            for line in lines:
                change = json.loads(line)
                if "change" in change:
                    since = f"&since={change['change']}" + (f".{change['part']}" if "part" in change else "")
                if lead is None:  # the first line says where the feed begins: an answer from here on is not older
                    ask = http.client.HTTPConnection(address)
                    ask.request("POST", "/_/query", json.dumps({"sql": "SELECT season, MAX(best) AS best FROM bests GROUP BY season"}))
                    lead = {row["season"]: row["best"] for row in json.loads(ask.getresponse().read())}
                    begun and begun.set()
                best = change.get("document")
                if best and best["best"] > lead.get(best["season"], -1):
                    lead[best["season"]] = best["best"]
                    print(f"season {best['season']}: a record of player {best['player']}: {best['best']}", flush=True)
                    found is None or found.append((best["player"], best["best"]))
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(1)


def pipeline(address, token, bodies):
    """Sends all scores over one connection before it reads the first reply; the statuses and bodies, in order."""
    head = "POST /scores HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
    with socket.create_connection(tuple(address.rsplit(":", 1)), timeout=30) as link:
        sender = threading.Thread(target=link.sendall, args=("".join(head % (token, len(b), b) for b in map(json.dumps, bodies)).encode(),))
        sender.start()
        replies, stream = [], link.makefile("rb")
        for _ in bodies:
            status, length = int(stream.readline().split()[1]), 0
            while (line := stream.readline().strip().lower()) != b"":
                length = int(line[15:]) if line.startswith(b"content-length:") else length
            replies.append((status, json.loads(stream.read(length))))
        sender.join()
        return replies


def check(sapsan, folder, matches):
    run = lambda *words: subprocess.run([sapsan, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    told = lambda what: print(f"{time.monotonic() - begun:5.1f} s  {what}", flush=True)
    begun = time.monotonic()

    # The file, with two tokens added: `game` for the game servers, `desk` for the administrators of seasons.
    config, tokens = folder / "leaderboard.toml", {}
    text = (HERE / "leaderboard.toml").read_text()
    for name, scope in ("game", "write"), ("desk", "manage"):
        lines = run("token", name, "--allow", scope)
        tokens[name] = next(line for line in lines.splitlines() if line.startswith("sapsan_"))
        text += "\n" + lines[lines.index("[tokens."):]
    config.write_text(text)
    game, desk = tokens["game"], tokens["desk"]

    # The imported data, and its expected results.
    data = generate(matches)
    seasons = SEATS * matches // 2  # scores of each season
    (folder / "generated.json").write_text(json.dumps(data))
    run("import", config, "--data", "data", "generated.json")
    told(f"imported {len(data['scores'])} scores")
    country = {p["id"]: p["country"] for p in data["players"]}
    bests = {season: {b["player"]: b["best"] for b in data["bests"] if b["season"] == season} for season in (1, 2)}

    server = Server(sapsan, config, folder / "data", "--backups", folder / "backups")
    get = lambda path: server.expect(200, "GET", path)

    def ranks(season):
        order = sorted(((best, player) for player, best in bests[season].items()), reverse=True)
        assert [(r["best"], r["player"]) for r in get(f"/seasons/{season}/top?n=100")] == order[:100]
        for at in 0, 3, 500, len(order) - 1:
            best, player = order[at]
            assert get(f"/seasons/{season}/players/{player}") == {"player": player, "best": best, "rank": at + 1}
            first, around = max(0, at - 5), get(f"/seasons/{season}/players/{player}/around")
            assert [(r["rank"], r["best"], r["player"]) for r in around] == [(i + 1, *order[i]) for i in range(first, min(at + 6, len(order)))]
        sums = {}
        for best, player in order:
            n, total, most = sums.get(country[player], (0, 0, 0))
            sums[country[player]] = n + 1, total + best, max(most, best)
        assert {r["country"]: (r["players"], r["total"], r["best"]) for r in get(f"/seasons/{season}/countries")} == sums

    ranks(1), ranks(2)
    server.expect(404, "GET", "/seasons/2/players/999999"), server.expect(404, "GET", "/seasons/2/players/999999/around")
    told("tops, ranks, neighbours and countries are right")

    # Submissions: permissions, rejections, bests.
    ready, found = threading.Event(), []
    threading.Thread(target=follow, args=(server.url, ready, found), daemon=True).start()
    assert ready.wait(10)
    match = server.expect(201, "POST", "/matches", {"season": 2}, game)["id"]
    player = server.expect(201, "POST", "/players", {"name": "newcomer", "country": "FI"}, game)["id"]
    country[player] = "FI"
    score = lambda m, p, n: {"match": m, "player": p, "score": n}
    server.expect(401, "POST", "/scores", score(match, player, 1))
    server.expect(403, "POST", "/scores", score(match, player, 1), desk)
    assert server.expect(201, "POST", "/scores", score(match, player, 500), game) == {"season": 2, "score": 500, "best": 500, "before": None}
    server.expect(409, "POST", "/scores", score(match, player, 900), game)
    server.expect(400, "POST", "/scores", score(match, player, -1), game)
    server.expect(404, "POST", "/scores", score(match, 999999, 1), game)
    match += 1
    server.expect(201, "POST", "/matches", {"season": 2}, game)
    assert server.expect(201, "POST", "/scores", score(match, player, 400), game)["best"] == 500
    server.expect(201, "POST", "/matches", {"season": 2}, game)
    top = max(bests[2].values()) + 1
    assert server.expect(201, "POST", "/scores", score(match + 1, player, top), game)["before"] == 500
    bests[2][player] = top
    ranks(2)
    for _ in range(50):
        if not found:
            time.sleep(0.1)
    assert found == [(player, top)], found
    told("submissions and the feed are right")

    # Two concurrent pipelines send the same 1,000 scores: each score is accepted once. A backup is made meanwhile.
    match = server.expect(201, "POST", "/matches", {"season": 2}, game)["id"]
    bodies = [score(match, p, 10 * p) for p in range(1, 1001)]
    twice = [[], []]
    senders = [threading.Thread(target=lambda into=into: into.extend(pipeline(server.address, game, bodies))) for into in twice]
    [s.start() for s in senders]
    while server.sql("SELECT COUNT(*) AS n FROM scores WHERE match = :match", match=match)[0]["n"] < 50:
        pass
    run("backup", server.url, "monday")
    [s.join() for s in senders]
    assert all(sorted((a[0], b[0])) == [201, 409] for a, b in zip(*twice)) and len(twice[0]) == 1000
    for body in bodies:
        bests[2][body["player"]] = max(body["score"], bests[2].get(body["player"], 0))
    ranks(2)
    told("pipelines are right")

    # The backup is consistent: its bests match its scores.
    run("restore", "backups/monday", "restored")
    restored = Server(sapsan, config, folder / "restored")
    wrong = restored.sql("""SELECT COUNT(*) AS n FROM bests b JOIN (SELECT season, player, MAX(score) AS most FROM scores GROUP BY season, player) m
                            ON m.season = b.season AND m.player = b.player WHERE m.most <> b.best""")
    count = restored.sql("SELECT COUNT(*) AS n FROM scores")[0]["n"]
    assert wrong == [{"n": 0}] and 2 * seasons + 53 <= count <= 2 * seasons + 1_003, (wrong, count)
    restored.stop()
    told(f"the backup has {count} scores")

    # A closed season.
    server.expect(403, "POST", "/seasons/2/close", token=game)
    server.expect(200, "POST", "/seasons/2/close", token=desk)
    refused = server.expect(410, "POST", "/scores", score(match, 5000, 1), game)
    assert refused["detail"] == "the season of this match is closed", refused
    told("a closed season takes no scores")

    # A new index, without a restart.
    query = "SELECT player, best FROM bests WHERE season = 2 AND country = 'FI' ORDER BY best DESC LIMIT 3"
    before = server.sql(query)
    index = '["season", "best", "player"]'
    config.write_text(text.replace(index, index + ', ["season", "country", "best", "player"]'))
    assert server.expect(200, "POST", "/_/config/reload")["reloaded"]
    for _ in range(100):
        plan = server.ask("POST", "/_/query", {"sql": query})[2]["Sapsan-Plan"]
        if "country=?" in plan:
            break
        time.sleep(0.1)
    assert "country=?" in plan and server.sql(query) == before, plan
    told("the new index is in use: " + plan)

    # The nightly clean-up: the scores of an old season are deleted, its bests stay.
    assert server.sql("DELETE FROM scores WHERE season = :season", season=1) == {"changed": seasons}
    assert server.sql("SELECT season, COUNT(*) AS n FROM scores GROUP BY season") == [{"season": 2, "n": seasons + 1_003}]
    ranks(1)
    told("the clean-up is right")
    server.stop()
    run("verify", "data", "--config", config)
    told("all is right")


if __name__ == "__main__":
    if sys.argv[1:] == ["generate"]:
        json.dump(generate(), sys.stdout)
    elif sys.argv[1:2] == ["follow"]:
        follow(sys.argv[2])
    elif len(sys.argv) in (2, 3):
        with tempfile.TemporaryDirectory(prefix="leaderboard-") as name:
            try:
                check(os.path.abspath(sys.argv[1]), pathlib.Path(name), int(sys.argv[2]) if len(sys.argv) == 3 else MATCHES)
            finally:
                for process in Server.all:
                    process.kill()
    else:
        sys.exit(__doc__)
