"""A Dueline worker in Python, with nothing but the standard library: worker.py http://127.0.0.1:7070 JOB

docs/workers.md explains each call.
"""

import json
import secrets
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER, JOB = sys.argv[1:3]
WORKER = f"python@{secrets.token_hex(8)}"  # a new incarnation at each start
stopping = threading.Event()


class Cancelled(Exception):
    """A user has asked to stop the run."""


def call(path, body=None, method="POST"):
    """Repeats a call whose answer was lost; a refusal is raised as HTTPError."""
    data = json.dumps(body).encode() if body is not None else None
    while True:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{SERVER}/v1/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refused:
            if refused.code < 500 and refused.code != 429:
                raise
        except OSError:
            pass
        time.sleep(0.5)


def handle(payload, attempt, cancelled):
    """Your code: its return value is the result; an exception fails the run, which is then retried."""
    if attempt < payload.get("fails", 0):
        raise ValueError(f"not yet: attempt {attempt}")
    if cancelled.wait(payload.get("seconds", 0)):
        raise Cancelled
    return payload["n"] ** 2


def run(task):
    def report(verb, **what):
        proof = {"token": task["token"], "write_id": secrets.token_hex(8)}
        return call(f"work/{JOB}/{task['id']}/{verb}", proof | what)

    def heartbeat():
        while not done.wait(task["heartbeat_timeout_ms"] / 4000):
            try:
                if report("heartbeat")["cancel_requested"]:
                    cancelled.set()
            except urllib.error.HTTPError:  # the task is no longer this worker's
                return cancelled.set()

    done, cancelled = threading.Event(), threading.Event()
    report("start")
    threading.Thread(target=heartbeat, daemon=True).start()
    try:
        outcome = ("complete", {"result": handle(task["payload"], task["attempt"], cancelled)})
    except Cancelled:
        outcome = ("fail", {"error": "stopped on request", "cancelled": True})
    except Exception as error:
        outcome = ("fail", {"error": repr(error)})
    done.set()
    report(outcome[0], **outcome[1])


def register():
    """Says again and again that this worker is there, so that it is listed and its tasks are known to be served."""
    while not stopping.is_set():
        alive = call("workers", {"worker": WORKER, "jobs": [JOB], "concurrency": 1})
        stopping.wait(alive["interval_ms"] / 1000)


signal.signal(signal.SIGTERM, lambda *_: stopping.set())
threading.Thread(target=register, daemon=True).start()
while not stopping.is_set():
    for task in call("work:next", {"worker": WORKER, "jobs": [JOB], "wait_ms": 1000})["tasks"]:
        try:
            run(task)
        except urllib.error.HTTPError as refused:  # 409: the task belongs to another worker now
            print(task["id"], refused.read().decode(), file=sys.stderr)
call(f"workers/{WORKER}", method="DELETE")
