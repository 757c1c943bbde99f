#!/usr/bin/env bash
# Runs a whole fleet as separate processes of this machine, until Ctrl-C.
#
#   localstack/fleet.sh
#
# Two frontends, two consumers, two status controllers, two controllers with an executor each; all on loopback. After
# localstack/up.sh, or with AWS_ENDPOINT_URL, or with DUELINE_STORE and DUELINE_QUEUE.
set -euo pipefail
# Each child in a process group of its own: Ctrl-C reaches this script alone, which ends them in order.
set -m
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

frontends=(7070 7071)
consumers=(7075 7076)
status_controllers=(7081 7082)
controllers=(7091 7092)

start_max_s=60
# Longer than the programs' own grace.
stop_max_s=60
logs=$state/fleet

# Ids by name, and names in the order in which they started.
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

# Waits until each of them says that it listens.
ready() {
    local name
    for name in "$@"; do
        until_so "$start_max_s" listens_or_ended "$name" || true
        grep --quiet "^listening on " "$logs/$name.log" || died "$name" "did not start"
    done
}

died() {
    echo "fleet.sh: $1 $2; the last of $logs/$1.log:" >&2
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

# Ends them together: an orderly end first, then the hard one.
stop() {
    local name
    for name in "$@"; do
        kill -TERM "${ids[$name]}" 2> /dev/null || true
    done
    until_so "$stop_max_s" none_alive "$@" && return 0
    for name in "$@"; do
        kill -KILL "${ids[$name]}" 2> /dev/null || true
    done
}

# Workers first, so that what they finish can still be reported; then those who take and keep work.
stop_all() {
    trap '' INT TERM
    trap - EXIT
    echo "ending the fleet"
    local role name
    for role in executor controller consumer frontend status; do
        local group=()
        for name in "${names[@]}"; do
            [ "${name%-*}" != "$role" ] || group+=("$name")
        done
        [ ${#group[@]} -eq 0 ] || stop "${group[@]}"
    done
}

# As addresses, separated by commas.
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
ready "${names[@]}"

for i in "${!controllers[@]}"; do
    run "controller-$i" dueline-controller --queue "$queue" --server "$(addresses "${status_controllers[@]}")" \
        --listen "127.0.0.1:${controllers[i]}" --no-worker
    ready "controller-$i"
    run "executor-$i" dueline-executor --server "$(addresses "${controllers[i]}")"
done

cat << END
the fleet runs: ${names[*]}
logs      $logs
tasks to  $(addresses "${frontends[@]}")
try       localstack/smoke.sh
          $DUELINE --server http://127.0.0.1:${frontends[0]} job apply hello --command 'cat'
          $DUELINE --server http://127.0.0.1:${frontends[1]} task submit hello --payload-text world --wait
end       Ctrl-C
END

while true; do
    for name in "${names[@]}"; do
        is_alive "$name" || died "$name" "has ended"
    done
    # In the background, so that a signal need not wait for it.
    sleep 1 &
    wait $! || true
done
