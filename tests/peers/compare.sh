#!/usr/bin/env bash
# Measures Dueline and Effectum alternately on this machine, and prints the medians and their ratios.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3}
folder=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/dueline-peers-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cargo build --release --locked -p dueline-cli --bin dueline
CARGO_TARGET_DIR=target/peers cargo build --release --manifest-path tests/peers/effectum/Cargo.toml
dueline=target/release/dueline effectum=target/peers/release/peer-effectum

for round in $(seq "$rounds"); do
    {
        "$effectum" "$folder" enqueue 100000 64
        "$dueline" bench --json --dir "$folder" --scenario enqueue --tasks 100000 --concurrency 64
        "$effectum" "$folder" drain 50000 10
        "$dueline" bench --json --dir "$folder" --scenario drain --tasks 200000 --concurrency 10
        "$effectum" "$folder" drain 100000 1000
        "$dueline" bench --json --dir "$folder" --scenario drain --tasks 200000 --concurrency 500
        "$effectum" "$folder" both 50000 10
        "$dueline" bench --json --dir "$folder" --scenario both --tasks 100000 --concurrency 10
    } 2>/dev/null | tee -a "$folder/lines"
done
python3 - "$folder/lines" <<'PY'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
def median(test):
    return statistics.median(line["rate_per_s"] for line in lines if test(line))
pairs = [("enqueue, 64 callers", "enqueue", 64, 64), ("drain, concurrency 10", "drain", 10, 10),
         ("drain, best setting", "drain", 1000, 500), ("both, concurrency 10", "both", 10, 10)]
for name, scenario, theirs, ours in pairs:
    peer = median(lambda l: l.get("peer") and l["scenario"] == scenario and l["concurrency"] == theirs)
    mine = median(lambda l: not l.get("peer") and l["scenario"] == scenario and l["concurrency"] == ours)
    print(f"{name}: dueline (FULL) {mine:,.0f}/s, effectum (WAL, NORMAL) {peer:,.0f}/s, ratio {mine / peer:.2f}")
PY
