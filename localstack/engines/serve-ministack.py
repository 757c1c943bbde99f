#!/usr/bin/env python3
"""ministack (an AWS on one port) on loopback: `serve-ministack.py FOLDER [--port PORT] [--prepare] [--until-stdin-closes]`.

It is installed once, into a virtual environment below FOLDER; one process installs it while others wait. All data is kept
in memory and lost when it ends.
"""

import argparse
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "ministack-requirements.txt"
# Settings that change its behaviour, fixed so that tests and local fleets get the same engine whatever the shell has
# set.
FIXED = {
    "BIND_HOST": "127.0.0.1",  # the default is all addresses of the machine
    "MINISTACK_HOST": "127.0.0.1",  # the host in the queue URLs that it returns
    "PERSIST_STATE": "0",
    "S3_PERSIST": "0",
    "LOCALSTACK_PERSISTENCE": "0",
    "AUTH": "false",
    "USE_SSL": "0",
    "IOT_MTLS_ENABLED": "0",  # would open a second port
    "LOG_LEVEL": "WARNING",
}
DROPPED = ("SERVICES", "EDGE_PORT", "MINISTACK_REGION", "MINISTACK_ACCOUNT_ID")


def fail(message):
    sys.exit(f"serve-ministack.py: {message}")


def version():
    for line in REQUIREMENTS.read_text().splitlines():
        if line.startswith("ministack=="):
            return line.removeprefix("ministack==")
    fail(f"{REQUIREMENTS} names no version of ministack")


def prepare(folder):
    """The Python of an environment with ministack; created if it is missing, outdated or incomplete."""
    requirements = REQUIREMENTS.read_text()
    home = folder / f"ministack-{version()}"
    python = home / "bin" / "python"
    stamp = home / "complete"

    def is_complete():
        return python.exists() and stamp.exists() and stamp.read_text() == requirements

    if is_complete():
        return python
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "ministack.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The previous holder of the lock may have installed it.
        if is_complete():
            return python
        print(f"installing ministack {version()} (once)", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        created = subprocess.run([sys.executable, "-m", "venv", str(home)], stdout=sys.stderr)
        if created.returncode != 0:
            fail("failed to create a virtual environment; install the venv module (Debian, Ubuntu: python3-venv)")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        installed = subprocess.run([*install, "--requirement", str(REQUIREMENTS)], stdout=sys.stderr)
        if installed.returncode != 0:
            fail(f"pip failed to install {REQUIREMENTS}; it needs a package index, or PIP_FIND_LINKS with wheels")
        # Written last: an environment without the stamp is incomplete.
        stamp.write_text(requirements)
    return python


def end_with_input():
    """Ends this process when the other end of its standard input closes, also when the parent process was killed."""

    def watch():
        while os.read(0, 64):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(port, until_stdin_closes):
    import asyncio
    import resource

    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config
    from ministack.app import app

    if until_stdin_closes:
        end_with_input()
    # Every connection uses a file descriptor.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_timeout = 75
    config.loglevel = "WARNING"
    asyncio.run(hypercorn_serve(app, config))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the virtual environment is kept")
    parser.add_argument("--port", type=int, default=4566)
    parser.add_argument("--prepare", action="store_true", help="install ministack, start nothing")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input closes")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.port, options.until_stdin_closes)
        return
    if sys.version_info < (3, 10):
        fail("ministack needs Python 3.10 or newer")
    python = prepare(options.folder.absolute())
    if options.prepare:
        return
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    environment |= FIXED | {"GATEWAY_PORT": str(options.port)}
    arguments = [str(python), __file__, str(options.folder), "--serve", "--port", str(options.port)]
    if options.until_stdin_closes:
        arguments.append("--until-stdin-closes")
    # Replaces this process, so that its id is the engine's.
    os.execve(python, arguments, environment)


if __name__ == "__main__":
    main()
