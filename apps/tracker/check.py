#!/usr/bin/env python3
"""Tests a running tracker; fails if an answer is wrong.

    check.py [--port 8080] [--page-port 8001] [--chromium PATH]

It creates users, projects and issues with new names, so it can run again on the same data. With Chromium it tests page.html too.
"""
import argparse, functools, hashlib, http.server, json, pathlib, secrets, shutil, subprocess, tempfile, threading, time
import urllib.error, urllib.parse, urllib.request
from concurrent.futures import ThreadPoolExecutor

args = argparse.ArgumentParser()
args.add_argument("--port", type=int, default=8080, help="port of the server")
args.add_argument("--page-port", type=int, default=8001, help="port of an origin that `cors` in tracker.toml names")
args.add_argument("--chromium", default=shutil.which("chromium"))
args = args.parse_args()
API = f"http://127.0.0.1:{args.port}"
ORIGIN = f"http://127.0.0.1:{args.page_port}"
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise SystemExit(f"WRONG: {what}")


def call(method, path, body=None, session=None, expect=200, **fields):
    """One request, which must be answered with `expect`: the value of the reply, and its header."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    if session:
        headers["X-Session"] = session
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, headers, method=method)
    try:
        reply = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        reply = error
    text = reply.read()
    if expect is not None:
        check(reply.status == expect, f"{method} {path} {body}: {reply.status} instead of {expect}: {text.decode()}")
    value = json.loads(text) if text else None
    return (reply.status, value) if expect is None else (value, reply.headers) if fields else value


def derive(user, password):
    return hashlib.pbkdf2_hmac("sha256", password.encode(), b"tracker:" + user.encode(), 600_000).hex()


def sign_in(user, **more):
    session = secrets.token_hex(32)
    reply = call("POST", "/sessions", {"user": user, "password": PROOF[user], "session": session, **more}, expect=201)
    check(reply["user"] == user and reply["until"] > time.time() - 2, f"a session: {reply}")
    return session


run = secrets.token_hex(4)
ANN, BOB, PROJECT = f"ann-{run}", f"bob-{run}", f"web-{run}"
PROOF = {user: derive(user, "secret") for user in (ANN, BOB)}
for user in PROOF:
    call("POST", "/_/collections/users", {"name": user, "password": PROOF[user]}, expect=201)

# Sessions
call("POST", "/sessions", {"user": ANN, "password": derive(ANN, "guess"), "session": "s" * 32}, expect=401)
call("POST", "/sessions", {"user": "nobody", "password": PROOF[ANN], "session": "s" * 32}, expect=401)
call("POST", "/sessions", {"user": ANN, "password": PROOF[ANN], "session": "short"}, expect=400)
ann, bob = sign_in(ANN), sign_in(BOB)
call("POST", "/sessions", {"user": BOB, "password": PROOF[BOB], "session": ann}, expect=409)
short, began = sign_in(ANN, seconds=2), time.time()
call("GET", "/projects", session=short)

# Projects
call("POST", "/projects", {"id": PROJECT, "title": "The web site"}, ann, 201)
call("POST", "/projects", {"id": PROJECT, "title": "Again"}, ann, 409)
call("POST", "/projects", {"id": "No Name", "title": "x"}, ann, 400)
check({"id": PROJECT, "title": "The web site"} in call("GET", "/projects", session=bob)["projects"], "the project is listed")

# Issues
ISSUES = f"/projects/{PROJECT}/issues"
first = call("POST", ISSUES, {"title": "The first one", "labels": ["bug", "ui"], "assignee": BOB}, ann, 201)
check((first["state"], first["author"], first["version"], first["labels"]) == ("open", ANN, 1, ["bug", "ui"]), f"a new issue: {first}")
call("POST", ISSUES, {"title": ""}, ann, 400)
call("POST", ISSUES, {"title": "x", "labels": [7]}, ann, 400)
call("POST", ISSUES, {"title": "x", "assignee": "nobody"}, ann, 400)
call("POST", ISSUES, {"title": "x", "author": BOB}, ann, 400)
call("POST", "/projects/none/issues", {"title": "x"}, ann, 404)
call("GET", "/issues/4000000000", session=ann, expect=404)
ONE = f"/issues/{first['id']}"
check(call("GET", ONE, session=bob) == first, "an issue is read as it was answered")

# Every endpoint refuses an unknown session, and none.
for session in (None, "f" * 64):
    for method, path, body in [
        ("DELETE", "/sessions", None), ("GET", "/projects", None), ("POST", "/projects", {"id": "x", "title": "x"}),
        ("GET", f"/projects/{PROJECT}/states", None), ("GET", ISSUES, None), ("POST", ISSUES, {"title": "x"}), ("GET", ONE, None),
        ("PATCH", ONE, {"title": "x"}), ("GET", ONE + "/comments", None), ("POST", ONE + "/comments", {"text": "x"}),
    ]:
        call(method, path, body, session, 401)

# Two users edit one issue: the second gets 412 and reads again, so that no change is lost.
call("PATCH", ONE, {"state": "doing"}, ann, 428)
changed, _ = call("PATCH", ONE, {"state": "doing", "body": "by ann"}, ann, If_Match='"1"')
check((changed["state"], changed["version"]) == ("doing", 2), f"a change: {changed}")
call("PATCH", ONE, {"title": "by bob"}, bob, 412, If_Match='"1"')
check(call("GET", ONE, session=bob) == changed, "a refused change changes nothing")
changed, _ = call("PATCH", ONE, {"title": "by bob"}, bob, If_Match='"2"')
check((changed["title"], changed["body"], changed["version"]) == ("by bob", "by ann", 3), f"both changes: {changed}")
call("PATCH", ONE, {"titel": "x"}, bob, 400, If_Match='"3"')
call("PATCH", ONE, {"state": "lost"}, bob, 400, If_Match='"3"')
changed, _ = call("PATCH", ONE, {"assignee": "", "labels": []}, bob, If_Match='"3"')
check((changed["assignee"], changed["labels"]) == (None, []), f"nobody, no labels: {changed}")

def add_label(n):
    """Adds a label as often as it takes, and counts the answers 412."""
    for refused in range(100):
        issue = call("GET", ONE, session=ann)
        match = f'"{issue["version"]}"'
        status, _ = call("PATCH", ONE, {"labels": issue["labels"] + [f"l{n}"]}, ann, None, If_Match=match)
        if status == 200:
            return refused
        check(status == 412, f"a race is answered with 200 or 412, not {status}")

with ThreadPoolExecutor(8) as pool:
    lost = sum(pool.map(add_label, range(16)))
issue = call("GET", ONE, session=ann)
check((sorted(issue["labels"]), issue["version"]) == (sorted(f"l{n}" for n in range(16)), 20), f"16 labels of 8 clients at once: {issue}")

# The list: filters, pages, a search by title. A page continues where the last one ended, whatever is new meanwhile.
for n in range(24):
    made = call("POST", ISSUES, {"title": f"Task {n} 100%", "labels": ["even"] if n % 2 == 0 else []}, ann, 201)
    if n % 3 == 0:
        call("PATCH", f"/issues/{made['id']}", {"state": "done", "assignee": BOB}, ann, If_Match='"1"')

def find(**filters):
    return call("GET", f"{ISSUES}?{urllib.parse.urlencode(filters)}", session=bob)["issues"]

pages, before = [], {}
while page := find(limit=10, **before):
    pages.append([i["id"] for i in page])
    before = {"before": pages[-1][-1]}
    call("POST", ISSUES, {"title": "in between"}, ann, 201)
ids = sum(pages, [])
newest = find(limit=1)[0]["id"]
check([len(p) for p in pages] == [10, 10, 5] and ids == sorted(set(ids), reverse=True), f"pages: {pages}")
check(len(find(state="done", limit=100)) == 8 and len(find(label="even", limit=100)) == 12, "filters by state and by label")
check(len(find(state="done", label="even", assignee=BOB)) == 4 and find(assignee=ANN) == [], "filters together")
check(len(find(title="TASK", limit=100)) == 24 and len(find(title="100%", limit=100)) == 24 and find(title="%") != [] == find(title="_"), "the search")
for wrong in ({"state": "lost"}, {"limit": 0}, {"limit": 101}, {"before": "x"}):
    call("GET", f"{ISSUES}?{urllib.parse.urlencode(wrong)}", session=bob, expect=400)

# Counts by state, from the view
def states():
    return {row["state"]: row["issues"] for row in call("GET", f"/projects/{PROJECT}/states", session=ann)["states"]}

check(states() == {"doing": 1, "done": 8, "open": 19}, f"counts: {states()}")
call("PATCH", ONE, {"state": "done"}, bob, If_Match='"20"')
check(states() == {"done": 9, "open": 19}, f"counts after a change: {states()}")
call("GET", "/projects/none/states", session=ann, expect=404)

# Comments
for user, session in ((ANN, ann), (BOB, bob)):
    check(call("POST", ONE + "/comments", {"text": "hello"}, session, 201)["author"] == user, "who wrote a comment")
check([c["author"] for c in call("GET", ONE + "/comments", session=bob)["comments"]] == [ANN, BOB], "comments")
call("POST", "/issues/4000000000/comments", {"text": "x"}, ann, 404)

# Other origins
ask = {"Access_Control_Request_Method": "PATCH", "Access_Control_Request_Headers": "content-type,if-match,x-session"}
_, reply = call("OPTIONS", ONE, expect=204, Origin=ORIGIN, **ask)
check(reply["Access-Control-Allow-Origin"] == ORIGIN and "PATCH" in reply["Access-Control-Allow-Methods"], "a preflight")
check("x-session" in reply["Access-Control-Allow-Headers"].lower(), "a preflight allows X-Session")
_, reply = call("GET", ONE, expect=401, Origin=ORIGIN)
check(reply["Access-Control-Allow-Origin"] == ORIGIN, "pages may read failures")
for method, expect in (("OPTIONS", 204), ("GET", 401)):
    _, reply = call(method, ONE, expect=expect, Origin="http://evil.example", **(ask if method == "OPTIONS" else {}))
    check(reply["Access-Control-Allow-Origin"] is None, "no other origin may")

# Sessions end by expiry and by signing out.
time.sleep(max(0, began + 3.2 - time.time()))
call("GET", "/projects", session=short, expect=401)
spare = sign_in(ANN)
call("DELETE", "/sessions", session=spare)
call("GET", "/projects", session=spare, expect=401)

# The page, in a browser, from another origin
DRIVER = """<!doctype html><iframe src="page.html?port=PORT"></iframe><script>
const wait = async what => { for (let n = 0; n < 300; n++) { if (await what()) return; await new Promise(r => setTimeout(r, 50)) } throw Error("never: " + what) };
onload = async () => {
  let told = "ok";
  const doc = document.querySelector("iframe").contentDocument, $ = s => doc.querySelector(s);
  const send = (form, values) => { for (const k in values) $(form)[k].value = values[k]; $(form).requestSubmit() };
  try {
    send("#login", { user: "ANN", password: "guess" });
    await wait(() => $("#message").textContent == "no such user and password");
    send("#login", { user: "ANN", password: "secret" });
    await wait(() => $("#filter").project.options.length > 0);
    send("#filter", { project: "PROJECT" });
    await wait(() => $("#issues").textContent.startsWith("#NEWEST ") && $("#issues").children.length == 10);
    if ($("#states").textContent != "done: 9, open: 19") throw Error("wrong counts");
    $("#more").click();
    await wait(() => $("#issues").children.length == 20);
    send("#filter", { find: "task 7" });
    await wait(() => $("#issues").children.length == 1);
    send("#create", { title: "From the page" });
    await wait(() => $("#edit").title.value == "From the page");
    send("#comment", { text: "<b>a comment</b>" });
    await wait(() => $("#comment ul").textContent == "ANN: <b>a comment</b>");
    const id = parseInt($("#edit h2").textContent.slice(1));
    await fetch("API/issues/" + id, { method: "PATCH", headers: { "X-Session": "BOBS", "If-Match": '"1"' }, body: '{"body": "by bob"}' });
    send("#edit", { state: "doing" });
    await wait(() => $("#message").textContent.startsWith("Somebody else"));
    if ($("#edit").state.value != "doing" || $("#edit").body.value != "by bob") throw Error("412 lost something");
    send("#edit", {});
    await wait(() => $("#states").textContent == "doing: 1, done: 9, open: 19");
    $("#logout").click();
    await wait(() => !$("#login").hidden);
  } catch (e) { told = `${e} (${$("#message").textContent})` }
  fetch("/told", { method: "POST", body: told });
};
</script>"""
told, done = [], threading.Event()


class Pages(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/driver.html":
            return super().do_GET()
        text = DRIVER
        for name, value in (("PORT", str(args.port)), ("API", API), ("ANN", ANN), ("PROJECT", PROJECT), ("NEWEST", str(newest)), ("BOBS", bob)):
            text = text.replace(name, value)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()
        done.set()

    def log_message(self, *_):
        pass


if args.chromium:
    folder = str(pathlib.Path(__file__).resolve().parent)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.page_port), functools.partial(Pages, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen([args.chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
            "--remote-debugging-port=0", ORIGIN + "/driver.html"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done.wait(60)
        browser.terminate()
        browser.wait()
    check(told == ["ok"], f"the page in {args.chromium}: {told}")

print(f"all {checks} checks hold; 8 clients at once were told 412 {lost} times; the page {'was' if args.chromium else 'was NOT (no Chromium)'} tried in a browser")
