"""Deploys cloudformation.yaml without the services, and prints the created resources as JSON.

    python infra/deploy_check.py STACK [NAME=VALUE ...]

Endpoint and credentials come from the usual AWS variables (AWS_ENDPOINT_URL, AWS_REGION, ...). Parameters are those of the
template. The output is what AWS reports, not what the template says.
"""

import json
import pathlib
import sys
import time

import boto3

TEMPLATE = pathlib.Path(__file__).with_name("cloudformation.yaml")
# A stack without services takes a minute on AWS and a second on an engine.
WAIT_MAX_S = 600


def deploy(stack, parameters):
    """Creates the stack through a change set, as `aws cloudformation deploy` does, and waits for it."""
    cloudformation = boto3.client("cloudformation")
    change = {
        "StackName": stack,
        "ChangeSetName": "create",
        "ChangeSetType": "CREATE",
        "TemplateBody": TEMPLATE.read_text(),
        "Capabilities": ["CAPABILITY_IAM"],
        "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
    }
    cloudformation.create_change_set(**change)
    waiter = {"Delay": 1, "MaxAttempts": WAIT_MAX_S}
    cloudformation.get_waiter("change_set_create_complete").wait(
        StackName=stack, ChangeSetName="create", WaiterConfig=waiter
    )
    cloudformation.execute_change_set(StackName=stack, ChangeSetName="create")
    started = time.monotonic()
    while True:
        found = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        status = found["StackStatus"]
        if status == "CREATE_COMPLETE":
            return {o["OutputKey"]: o["OutputValue"] for o in found["Outputs"]}
        # Until the change set is executed, the stack is in review.
        ended = not status.endswith("_IN_PROGRESS")
        if ended or time.monotonic() - started > WAIT_MAX_S:
            events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
            why = [
                f"{e['LogicalResourceId']}: {e.get('ResourceStatusReason')}"
                for e in events
                if "FAILED" in e["ResourceStatus"]
            ]
            sys.exit(f"{stack} is {status}: {why}")
        time.sleep(0.2)


def resources(stack):
    """The resources of the stack: logical name, type and physical name."""
    pages = boto3.client("cloudformation").get_paginator("list_stack_resources")
    return [
        (r["LogicalResourceId"], r["ResourceType"], r["PhysicalResourceId"])
        for page in pages.paginate(StackName=stack)
        for r in page["StackResourceSummaries"]
    ]


def role(name):
    """The policy statements and the trust policy of a role."""
    iam = boto3.client("iam")
    inline = iam.list_role_policies(RoleName=name)["PolicyNames"]
    attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    documents = [iam.get_role_policy(RoleName=name, PolicyName=p)["PolicyDocument"] for p in inline]
    for policy in attached:
        version = iam.get_policy(PolicyArn=policy["PolicyArn"])["Policy"]["DefaultVersionId"]
        found = iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId=version)
        documents.append(found["PolicyVersion"]["Document"])
    trust = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    return {"trust": trust, "statements": [s for d in documents for s in d["Statement"]]}


def main():
    stack, parameters = sys.argv[1], dict(a.split("=", 1) for a in sys.argv[2:])
    outputs = deploy(stack, {"WithServices": "false", **parameters})
    found = resources(stack)
    of_type = lambda kind: [(logical, name) for logical, k, name in found if k == kind]
    sqs = boto3.client("sqs")
    queues = {
        logical: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        for logical, url in of_type("AWS::SQS::Queue")
    }
    alarms = boto3.client("cloudwatch").describe_alarms(
        AlarmNames=[name for _, name in of_type("AWS::CloudWatch::Alarm")], MaxRecords=100
    )
    tables = of_type("AWS::DynamoDB::Table")
    dynamodb = boto3.client("dynamodb")
    json.dump(
        {
            "outputs": outputs,
            "types": sorted({k for _, k, _ in found}),
            "tables": {l: dynamodb.describe_table(TableName=n)["Table"] for l, n in tables},
            "queues": queues,
            "roles": {logical: role(name) for logical, name in of_type("AWS::IAM::Role")},
            "alarms": alarms["MetricAlarms"],
        },
        sys.stdout,
        default=str,
    )


if __name__ == "__main__":
    main()
