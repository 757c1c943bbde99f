#!/usr/bin/env bash
# Submits 20 tasks to a running fleet and waits until all have succeeded. Fails if one does not.
#
#   localstack/smoke.sh [FRONTEND…]      default: the frontends of fleet.sh
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

frontends=("$@")
[ $# -gt 0 ] || frontends=(http://127.0.0.1:7070 http://127.0.0.1:7071)
tasks=20
finish_max_s=60
job=smoke-$(date +%s)-$$

find_programs

# count STATE: the number of tasks in this state, according to a frontend.
count() {
    "$DUELINE" --json --server "${frontends[0]}" job stats "$job" \
        | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

all_ended() {
    succeeded=$(count succeeded)
    failed=$(count failed)
    [ $((${succeeded:-0} + ${failed:-0})) -ge "$tasks" ]
}

"$DUELINE" --server "${frontends[0]}" job apply "$job" --command cat > /dev/null
echo "job $job"
for ((i = 0; i < tasks; i++)); do
    "$DUELINE" --server "${frontends[i % ${#frontends[@]}]}" task submit "$job" --payload-text "task $i" > /dev/null
done
echo "submitted $tasks tasks"

wait_until "$finish_max_s" all_ended || true
if [ "${succeeded:-0}" -ne "$tasks" ]; then
    "$DUELINE" --server "${frontends[0]}" job stats "$job" >&2 || true
    fail "${succeeded:-0} of $tasks tasks have succeeded within $finish_max_s s"
fi
echo "all $tasks tasks have succeeded"
"$DUELINE" --server "${frontends[0]}" job delete "$job" > /dev/null
