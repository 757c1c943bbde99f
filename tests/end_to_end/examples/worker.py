"""A Dueline worker in Python, with nothing but the standard library: worker.py http://127.0.0.1:7070 JOB"""

import json
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER, JOB = sys.argv[1:3]
WORKER = f"python@{secrets.token_hex(8)}"  # a new incarnation at each start


def call(path, body):
    """Repeats a call whose answer was lost; a refusal is raised as HTTPError."""
    data = json.dumps(body).encode()
    while True:
        request = urllib.request.Request(f"{SERVER}/v1/{path}", data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code < 500:
                raise
        except OSError:
            pass
        time.sleep(0.5)


def handle(payload, attempt):
    """Your code: its return value is the result; an exception fails the run, which is then retried."""
    if attempt < payload.get("fails", 0):
        raise ValueError(f"not yet: attempt {attempt}")
    time.sleep(payload.get("seconds", 0))
    return payload["n"] ** 2


def run(task):
    def report(verb, **what):
        proof = {"token": task["token"], "write_id": secrets.token_hex(8)}
        return call(f"work/{JOB}/{task['id']}/{verb}", proof | what)

    def heartbeat():
        while not done.wait(task["heartbeat_timeout_ms"] / 4000):
            report("heartbeat")

    done = threading.Event()
    report("start")
    threading.Thread(target=heartbeat, daemon=True).start()
    try:
        outcome = ("complete", {"result": handle(task["payload"], task["attempt"])})
    except Exception as error:
        outcome = ("fail", {"error": repr(error)})
    done.set()
    report(outcome[0], **outcome[1])


while True:
    for task in call("work:next", {"worker": WORKER, "jobs": [JOB], "wait_ms": 20000})["tasks"]:
        try:
            run(task)
        except urllib.error.HTTPError as refused:  # 409: the task belongs to another worker now
            print(task["id"], refused.read().decode(), file=sys.stderr)
