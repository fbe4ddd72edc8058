#!/usr/bin/env python3
"""Makes ammo and answers for `sapsan loadtest` against a running bank, and computes the contest's score of a run.

    ammo.py make http://127.0.0.1:8080 users.tsv DIR [--customers 1000] [--seed 1]
    ammo.py score DIR run.json

`make` logs customers in, because the load tester keeps no cookies: each request for /mypage sends the cookie of an earlier login.
A visit is: the login page with its four assets, a login, the customer's page with its four assets. One visit in ten is a guess: the
login page and a wrong password, from a unique address. Therefore the bank must trust the load tester as a proxy
(`--trusted-proxy 127.0.0.1`).

`score` takes the output of `sapsan loadtest --json`: 100 points for each right page, 2 for each right asset. The load tester does not
count right replies by kind, so each counts the average points of the ammo.
"""
import argparse, http.client, json, pathlib, random, urllib.parse

ASSETS = ["/stylesheets/bootstrap.min.css", "/stylesheets/bootflat.min.css", "/stylesheets/isucon-bank.css", "/images/isucon-bank.png"]
PAGE_POINTS, ASSET_POINTS = 100, 2
FORM = "application/x-www-form-urlencoded"

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = arguments.add_subparsers(dest="command", required=True)
make = commands.add_parser("make")
make.add_argument("url")
make.add_argument("users", type=pathlib.Path)
make.add_argument("folder", type=pathlib.Path)
make.add_argument("--customers", type=int, default=1000, help="customers that log in")
make.add_argument("--seed", type=int, default=1)
score = commands.add_parser("score")
score.add_argument("folder", type=pathlib.Path)
score.add_argument("run", type=pathlib.Path)


def form(login, password):
    return urllib.parse.urlencode({"login": login, "password": password})


def address(number):
    """One of many addresses that are reserved for tests."""
    return f"198.{18 + number // 65536 % 2}.{number // 256 % 256}.{number % 256}"


def log_in(connection, login, password, client):
    """The cookie of a login, or nothing if the bank rejects it."""
    headers = {"Content-Type": FORM, "X-Forwarded-For": client}
    connection.request("POST", "/login", form(login, password), headers)
    reply = connection.getresponse()
    reply.read()
    if reply.status != 302:
        raise SystemExit(f"POST /login is answered {reply.status}")
    cookie = reply.getheader("Set-Cookie")
    return cookie.split(";")[0] if cookie and reply.getheader("Location") == "/mypage" else None


def write(arguments):
    customers = [line.rstrip("\n").split("\t") for line in arguments.users.open(encoding="utf-8")]
    choose = random.Random(arguments.seed)
    choose.shuffle(customers)
    where = urllib.parse.urlsplit(arguments.url)
    connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=30)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    ammo = (arguments.folder / "ammo.ndjson").open("w", encoding="utf-8")
    answers = (arguments.folder / "answers.ndjson").open("w", encoding="utf-8")

    def add(method, path, client, status, body=None, cookie=None):
        headers = {"X-Forwarded-For": client}
        if body is not None:
            headers["Content-Type"] = FORM
        if cookie is not None:
            headers["Cookie"] = cookie
        record = {"method": method, "path": path, "headers": headers, "tag": "asset" if path in ASSETS else "page"}
        if body is not None:
            # The body is URL-encoded: it has no brace, which would begin a placeholder.
            record["body"] = body
        ammo.write(json.dumps(record) + "\n")
        answers.write(json.dumps({"method": method, "path": path, "status": status}) + "\n")

    visits = 0
    for number, (_, login, password, _, _) in enumerate(customers):
        if visits == arguments.customers:
            break
        client = address(number)
        cookie = log_in(connection, login, password, client)
        if cookie is None:
            continue
        visits += 1
        add("GET", "/", client, 200)
        if visits % 10 == 0:
            add("POST", "/login", client, 302, form(f"guess{choose.randrange(10**6)}", "guess"))
            continue
        for path in ASSETS:
            add("GET", path, client, 200)
        add("POST", "/login", client, 302, form(login, password))
        add("GET", "/mypage", client, 200, cookie=cookie)
        for path in ASSETS:
            add("GET", path, client, 200)
    print(f"{visits} visits in {arguments.folder}; run\n"
          f"  sapsan loadtest {arguments.url} --ammo {arguments.folder}/ammo.ndjson --answers {arguments.folder}/answers.ndjson "
          "--connections 64 --duration 60s --json > run.json")


def points(arguments):
    records = [json.loads(line) for line in (arguments.folder / "ammo.ndjson").open(encoding="utf-8")]
    run = json.loads(arguments.run.read_text(encoding="utf-8"))
    each = sum(ASSET_POINTS if record["tag"] == "asset" else PAGE_POINTS for record in records) / len(records)
    right = run["requests"] - run["errors"]
    print(f"{right} right replies in {run['seconds']:.1f} s, {run['errors']} errors: {right * each:.0f} points")


parsed = arguments.parse_args()
write(parsed) if parsed.command == "make" else points(parsed)
