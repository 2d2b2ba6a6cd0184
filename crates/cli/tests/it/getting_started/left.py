"""What of a pool and its stack is left on AWS and GitHub, as JSON. The argument is the pool's name."""

import json
import os
import sys
import urllib.request

from botocore.session import Session


def client(service):
    url = os.environ.get("AWS_ENDPOINT_URL_" + service.upper(), os.environ["AWS_ENDPOINT_URL"])
    return Session().create_client(service, region_name=os.environ["AWS_REGION"], endpoint_url=url)


def machines():
    for reservation in client("ec2").describe_instances()["Reservations"]:
        for instance in reservation["Instances"]:
            if instance["State"]["Name"] != "terminated":
                yield instance["InstanceId"]


def stacks():
    for stack in client("cloudformation").list_stacks()["StackSummaries"]:
        if stack["StackName"] == "ondeck" and stack["StackStatus"] != "DELETE_COMPLETE":
            yield stack["StackStatus"]


def runners():
    url = os.environ["ONDECK_GITHUB_URL"] + "/repos/acme/web/actions/runners"
    token = os.environ["ONDECK_GITHUB_TOKEN"]
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return [runner["name"] for runner in json.load(answer)["runners"]]


def main():
    name = sys.argv[1]
    # The list begins behind the name that is given.
    tables = client("dynamodb").list_tables(ExclusiveStartTableName=name[:-1])["TableNames"]
    roles = [role["RoleName"] for role in client("iam").list_roles(MaxItems=1000)["Roles"]]
    own = ["ondeck-" + it for it in ("refresh", "operator", "steward", "provision", "release", "machine")]
    templates = client("ec2").describe_launch_templates()["LaunchTemplates"]
    left = {
        "tables": [table for table in tables if table.startswith(name)],
        "queues": client("sqs").list_queues(QueueNamePrefix=name).get("QueueUrls", []),
        "templates": [template["LaunchTemplateName"] for template in templates],
        "machines": list(machines()),
        "stacks": list(stacks()),
        "roles": [role for role in roles if role in own],
        "providers": client("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"],
        "runners": runners(),
    }
    print(json.dumps(left))


main()
