#!/bin/sh
# A consumer of the tasks of one job: ./consumer.sh JOB NAME COMMAND...
# The command gets the payload on standard input. A task whose command fails comes back after the backoff of its job.
job=$1 owner=$2
shift 2
while [ "$(dueline task count "$job")" -gt 0 ]; do
  for task in $(dueline task list "$job" --claimable --ids); do
    claimed=$(dueline task claim "$task" --owner "$owner" --lifetime 1m --json 2>&1) || continue
    token=$(printf '%s' "$claimed" | jq -r .token)
    export DUELINE_TOKEN="$token" DUELINE_OWNER="$owner"
    if result=$(printf '%s' "$claimed" | jq -c .payload | "$@"); then
      dueline task consume "$task" --result-text "$result" > /dev/null
    else
      dueline task fail "$task" --error "the command has failed" > /dev/null
    fi
  done
  sleep 0.2
done
