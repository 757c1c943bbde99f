#!/usr/bin/env bash
# Ends what up.sh has started, and everything in it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pid_file=$state/ministack.pid
program=serve-ministack.py

gone() {
    ! is_ours "$pid_file" "$program"
}

if is_ours "$pid_file" "$program"; then
    pid=$(cat "$pid_file")
    kill "$pid"
    # It may be in the middle of long polls.
    until_so 5 gone || kill -KILL "$pid"
    until_so 5 gone || fail "process $pid does not end"
    echo "ended ministack"
fi
rm -f "$pid_file"

if has_docker; then
    # Both: it does not matter which one it was.
    compose --profile ministack --profile localstack down --volumes
fi
