#!/usr/bin/env bash
# Starts a local engine of the AWS APIs on loopback, in the foreground; required files are fetched once.
#
#   engines.sh ministack|dynamodb-local|elasticmq [PORT]
#   engines.sh --prepare ENGINE               fetch the required files, start nothing
#   engines.sh --until-stdin-closes ENGINE …  end when standard input closes, for use by programs
#
# All files are kept below target/engines, or $DUELINE_ENGINES_DIR.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${DUELINE_ENGINES_DIR:-$here/../target/engines}

fail() {
    echo "engines.sh: $*" >&2
    exit 1
}

need() {
    command -v "$1" > /dev/null || fail "$1 is not installed; $2"
}

need_java() {
    need java "install a JDK of version 17 or newer"
    need javac "install a JDK of version 17 or newer; a runtime alone is not enough"
    need mvn "install Apache Maven"
}

# Fetches the jars of engine $1 and compiles the classes of this folder. One process does it while others wait. The
# stamp is written last, so that an incomplete folder is created again.
prepare_java() {
    local home=$folder/$1 wanted
    wanted=$(cat "$here/engines/$1"/* "$here/engines/UntilInputCloses.java" | cksum)
    [ "$(cat "$home/complete" 2> /dev/null)" = "$wanted" ] && return 0
    mkdir -p "$folder"
    (
        # Without flock (not available on every system), two concurrent starts may interfere.
        ! command -v flock > /dev/null || flock 9
        [ "$(cat "$home/complete" 2> /dev/null)" = "$wanted" ] && exit
        echo "fetching $1 (once)" >&2
        rm -rf "$home"
        mkdir -p "$home/classes"
        mvn --batch-mode --quiet --file "$here/engines/$1/pom.xml" \
            dependency:copy-dependencies "-DoutputDirectory=$(cd "$home" && pwd)/lib" >&2 \
            || fail "mvn failed to resolve $here/engines/$1/pom.xml"
        shopt -s nullglob
        javac -classpath "$home/lib/*" -d "$home/classes" \
            "$here/engines/UntilInputCloses.java" "$here/engines/$1"/*.java >&2
        echo "$wanted" > "$home/complete"
    ) 9> "$folder/$1.lock"
}

# Replaces this process, so that its id is the engine's: run_java ENGINE MAIN [ARGUMENTS].
run_java() {
    local home=$folder/$1
    shift
    [ -z "$until" ] || set -- UntilInputCloses "$@"
    exec java "${options[@]}" -classpath "$home/classes:$home/lib/*" "$@"
}

until=
only_prepare=
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --until-stdin-closes) until=$1 ;;
        --prepare) only_prepare=$1 ;;
        -*) fail "unknown option $1" ;;
        *) break ;;
    esac
    shift
done
engine=${1:-}
port=${2:-}

case $engine in
    ministack)
        need python3 "install Python 3.10 or newer"
        exec python3 "$here/engines/serve-ministack.py" "$folder" --port "${port:-4566}" $only_prepare $until
        ;;
    dynamodb-local)
        need_java
        prepare_java "$engine"
        [ -z "$only_prepare" ] || exit 0
        # Its native SQLite library is found beside the jars.
        options=("-Djava.library.path=$folder/$engine/lib" -Xmx512m)
        # One database for all credentials and regions, in memory; telemetry is off.
        run_java "$engine" Loopback -inMemory -sharedDb -disableTelemetry -port "${port:-8000}"
        ;;
    elasticmq)
        need_java
        prepare_java "$engine"
        [ -z "$only_prepare" ] || exit 0
        options=("-Dconfig.file=$here/engines/elasticmq/elasticmq.conf" "-Ddueline.port=${port:-9324}" -Xmx512m)
        run_java "$engine" org.elasticmq.server.Main
        ;;
    *)
        fail "unknown engine '$engine'; use ministack, dynamodb-local or elasticmq"
        ;;
esac
