#!/usr/bin/env bash
# Runs the suites of store and queue on other engines than the default ones: AWS's own DynamoDB Local, and ElasticMQ.
#
#   tests/cross-check.sh
#
# Needs a JDK 17 and Maven; everything else is fetched. docs/engines.md lists where these engines differ from AWS.
set -euo pipefail
cd "$(dirname "$0")/.."

dynamodb_port=${DUELINE_DYNAMODB_LOCAL_PORT:-28000}
sqs_port=${DUELINE_ELASTICMQ_PORT:-29324}
logs=$(mktemp -d)

# The engines end when the other end of this pipe closes, so that none is left running however this script ends.
exec 3> >(exec localstack/engines.sh --until-stdin-closes dynamodb-local "$dynamodb_port" > "$logs/dynamodb.log" 2>&1)
exec 4> >(exec localstack/engines.sh --until-stdin-closes elasticmq "$sqs_port" > "$logs/elasticmq.log" 2>&1)

answers() {
    python3 - "$1" << 'PYTHON'
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=2)
except urllib.error.HTTPError:
    pass  # an error response is an answer, too
except OSError:
    sys.exit(1)
PYTHON
}

for engine in "dynamodb $dynamodb_port" "elasticmq $sqs_port"; do
    read -r name port <<< "$engine"
    for attempt in $(seq 240); do
        answers "http://127.0.0.1:$port" && break
        [ "$attempt" -lt 240 ] || { echo "$name did not start" >&2; cat "$logs/$name.log" >&2; exit 1; }
        sleep 0.5
    done
done

export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:$dynamodb_port
export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:$sqs_port
echo "+ store suite on DynamoDB Local"
cargo test --locked -p dueline-store-dynamodb --test conformance
echo "+ queue suite on ElasticMQ"
cargo test --locked -p dueline-queue-sqs --test sqs
