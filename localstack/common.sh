# Functions and variables shared by the scripts of this folder; sourced, not executed.
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# Logs, and pid files of processes that outlive the script that started them.
state=$target/localstack

port=${DUELINE_AWS_PORT:-4566}
local_endpoint=http://127.0.0.1:$port

engines_dir=${DUELINE_ENGINES_DIR:-}
# Only for these scripts: the dueline programs warn about unknown DUELINE_ variables.
export -n DUELINE_AWS_PORT DUELINE_ENGINES_DIR

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

need() {
    command -v "$1" > /dev/null || fail "$1 is not installed; $2"
}

# Sets the store, the queue and their credentials.
#
# With an explicit store, queue or AWS_ENDPOINT_URL, the credentials of the shell are used. The local AWS gets dummy
# credentials, which are invalid everywhere else, whatever the shell has set.
choose_backends() {
    local endpoint=
    if [ -n "${DUELINE_STORE:-}${DUELINE_QUEUE:-}" ]; then
        [ -n "${DUELINE_STORE:-}" ] && [ -n "${DUELINE_QUEUE:-}" ] || fail "set both DUELINE_STORE and DUELINE_QUEUE"
    elif [ -z "${AWS_ENDPOINT_URL:-}" ]; then
        endpoint="?endpoint=$local_endpoint"
        unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_DYNAMODB AWS_ENDPOINT_URL_SQS
        export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1
    fi
    store=${DUELINE_STORE:-dynamodb://dueline$endpoint}
    queue=${DUELINE_QUEUE:-sqs://dueline$endpoint}
}

# Sets bin, the folder of the dueline programs: that of $DUELINE, or the build folder after a build.
find_programs() {
    if [ -n "${DUELINE:-}" ]; then
        [ -x "$DUELINE" ] || fail "DUELINE is '$DUELINE', which is not an executable"
        bin=$(cd "$(dirname "$DUELINE")" && pwd)
        return
    fi
    need cargo "install Rust, or set DUELINE to the dueline program"
    (cd "$root" && cargo build --release --locked --package dueline-cli --bins) || fail "failed to build the programs"
    bin=$target/release
    DUELINE=$bin/dueline
}

# Whether the health page answers, which ministack and LocalStack both have.
answers() {
    curl --silent --fail --max-time 2 --output /dev/null "$1/_localstack/health"
}

# wait_until SECONDS COMMAND…: repeats the command until it succeeds; fails when the time has passed.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

# Runs docker compose with this folder's file; fails if Docker is not running.
compose() {
    docker compose --file "$here/compose.yaml" "$@"
}

has_docker() {
    command -v docker > /dev/null && docker compose version > /dev/null 2>&1 && docker info > /dev/null 2>&1
}

# Whether the process of a pid file is alive and runs the expected program: process ids are reused.
is_running() {
    local pid
    pid=$(cat "$1" 2> /dev/null) && ps -p "$pid" -o args= 2> /dev/null | grep --quiet --fixed-strings "$2"
}
