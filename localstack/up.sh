#!/usr/bin/env bash
# Starts a local AWS and creates Dueline's table and queues in it. May be repeated.
#
#   localstack/up.sh
#
# Uses Docker if it is running (LocalStack with LOCALSTACK_AUTH_TOKEN, otherwise ministack), else ministack as a
# process. With AWS_ENDPOINT_URL, or DUELINE_STORE and DUELINE_QUEUE, nothing is started and the resources are created
# there.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Covers the first start of a container, but not the download of its image, which is done by then.
start_max_s=120

start_container() {
    local profile=ministack
    [ -z "${LOCALSTACK_AUTH_TOKEN:-}" ] || profile=localstack
    echo "starting $profile in Docker"
    compose --profile "$profile" up --detach --wait || fail "docker compose failed to start $profile"
}

start_process() {
    echo "starting ministack without Docker"
    DUELINE_ENGINES_DIR=$engines_dir "$here/engines.sh" --prepare ministack
    mkdir -p "$state"
    # A new session, so that the process outlives this script and its terminal.
    local own=setsid
    command -v setsid > /dev/null || own=nohup
    DUELINE_ENGINES_DIR=$engines_dir "$own" "$here/engines.sh" ministack "$port" < /dev/null > "$state/ministack.log" 2>&1 &
    echo $! > "$state/ministack.pid"
    wait_until "$start_max_s" answers_or_ended || true
    if ! answers "$local_endpoint"; then
        tail -n 20 "$state/ministack.log" >&2
        fail "ministack does not answer at $local_endpoint"
    fi
}

answers_or_ended() {
    answers "$local_endpoint" || ! kill -0 "$(cat "$state/ministack.pid")" 2> /dev/null
}

start() {
    need curl "install curl"
    if answers "$local_endpoint"; then
        echo "an engine already answers at $local_endpoint; it is used"
    elif has_docker; then
        start_container
    else
        start_process
    fi
    wait_until "$start_max_s" answers "$local_endpoint" || fail "no answer from $local_endpoint"
}

[ -n "${AWS_ENDPOINT_URL:-}${DUELINE_STORE:-}${DUELINE_QUEUE:-}" ] || start
choose_backends
find_programs
"$DUELINE" setup --store "$store" --queue "$queue"
cat << END

store  $store
queue  $queue
next   localstack/fleet.sh, and in another terminal localstack/smoke.sh
stop   localstack/down.sh
END
