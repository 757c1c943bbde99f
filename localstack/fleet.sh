#!/usr/bin/env bash
# Runs a complete fleet as separate processes on this machine, until Ctrl-C.
#
#   localstack/fleet.sh
#
# Two frontends, two consumers, two status controllers, and two controllers with an executor each, all on loopback. Run
# it after localstack/up.sh, or with AWS_ENDPOINT_URL, or with DUELINE_STORE and DUELINE_QUEUE.
set -euo pipefail
# Each child gets its own process group, so that Ctrl-C reaches only this script, which stops the children in order.
set -m
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

frontends=(7070 7071)
consumers=(7075 7076)
status_controllers=(7081 7082)
controllers=(7091 7092)

start_max_s=60
# Longer than the programs' own shutdown grace.
stop_max_s=60
logs=$state/fleet

# Process ids by name, and names in start order.
declare -A ids=()
names=()

# run NAME PROGRAM [ARGUMENTS]
run() {
    local name=$1 program=$2
    shift 2
    : > "$logs/$name.log"
    "$bin/$program" "$@" < /dev/null > "$logs/$name.log" 2>&1 &
    ids[$name]=$!
    names+=("$name")
}

is_alive() {
    kill -0 "${ids[$1]}" 2> /dev/null
}

listens_or_ended() {
    grep --quiet "^listening on " "$logs/$1.log" || ! is_alive "$1"
}

# Waits until each of the named processes listens.
wait_until_ready() {
    local name
    for name in "$@"; do
        wait_until "$start_max_s" listens_or_ended "$name" || true
        grep --quiet "^listening on " "$logs/$name.log" || fail_process "$name" "did not start"
    done
}

fail_process() {
    echo "fleet.sh: $1 $2; the end of $logs/$1.log:" >&2
    tail -n 20 "$logs/$1.log" >&2
    exit 1
}

any_alive() {
    local name
    for name in "$@"; do
        ! is_alive "$name" || return 0
    done
    return 1
}

none_alive() {
    ! any_alive "$@"
}

# Stops the named processes together: with SIGTERM first, after a timeout with SIGKILL.
stop() {
    local name
    for name in "$@"; do
        kill -TERM "${ids[$name]}" 2> /dev/null || true
    done
    wait_until "$stop_max_s" none_alive "$@" && return 0
    for name in "$@"; do
        kill -KILL "${ids[$name]}" 2> /dev/null || true
    done
}

# Executors first, so that tasks they finish can still be reported; then the processes that dispatch and store tasks.
stop_all() {
    trap '' INT TERM
    trap - EXIT
    echo "stopping the fleet"
    local role name
    for role in executor controller consumer frontend status; do
        local group=()
        for name in "${names[@]}"; do
            [ "${name%-*}" != "$role" ] || group+=("$name")
        done
        [ ${#group[@]} -eq 0 ] || stop "${group[@]}"
    done
}

# The addresses of these ports, separated by commas.
addresses() {
    local list
    list=$(printf 'http://127.0.0.1:%s,' "$@")
    echo "${list%,}"
}

choose_backends
find_programs
mkdir -p "$logs"
rm -f "$logs"/*.log
trap stop_all EXIT
trap 'exit 0' INT TERM

backends=(--store "$store" --queue "$queue")
for i in "${!status_controllers[@]}"; do
    run "status-$i" dueline-status-controller "${backends[@]}" --listen "127.0.0.1:${status_controllers[i]}"
done
for i in "${!consumers[@]}"; do
    run "consumer-$i" dueline-consumer "${backends[@]}" --listen "127.0.0.1:${consumers[i]}"
done
for i in "${!frontends[@]}"; do
    run "frontend-$i" dueline-frontend "${backends[@]}" --listen "127.0.0.1:${frontends[i]}"
done
wait_until_ready "${names[@]}"

for i in "${!controllers[@]}"; do
    run "controller-$i" dueline-controller --queue "$queue" --server "$(addresses "${status_controllers[@]}")" \
        --listen "127.0.0.1:${controllers[i]}" --no-worker
    wait_until_ready "controller-$i"
    run "executor-$i" dueline-executor --server "$(addresses "${controllers[i]}")"
done

cat << END
the fleet is running: ${names[*]}
logs      $logs
frontends $(addresses "${frontends[@]}")
try       localstack/smoke.sh
          $DUELINE --server http://127.0.0.1:${frontends[0]} job apply hello --command 'cat'
          $DUELINE --server http://127.0.0.1:${frontends[1]} task submit hello --payload-text world --wait
stop      Ctrl-C
END

while true; do
    for name in "${names[@]}"; do
        is_alive "$name" || fail_process "$name" "has ended"
    done
    # In the background, so that a signal is handled at once.
    sleep 1 &
    wait $! || true
done
