#!/usr/bin/env bash
# Stops the local AWS that up.sh has started, and deletes its data.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pid_file=$state/ministack.pid
program=serve-ministack.py

has_ended() {
    ! is_running "$pid_file" "$program"
}

if is_running "$pid_file" "$program"; then
    pid=$(cat "$pid_file")
    kill "$pid"
    # It may be serving long polls.
    wait_until 5 has_ended || kill -KILL "$pid"
    wait_until 5 has_ended || fail "process $pid does not end; kill it by hand"
    echo "stopped ministack"
fi
rm -f "$pid_file"

if has_docker; then
    # Both profiles, because either may have been started.
    compose --profile ministack --profile localstack down --volumes
fi
