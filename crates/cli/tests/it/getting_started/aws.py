"""The commands of the AWS CLI that the book's transcript uses, on the CLI's own library."""

import json
import os
import sys

from botocore.session import Session


def client(service):
    url = os.environ["AWS_ENDPOINT_URL_" + service.upper()]
    return Session().create_client(service, region_name=os.environ["AWS_REGION"], endpoint_url=url)


def options(arguments):
    return {name.removeprefix("--"): value for name, value in zip(arguments[::2], arguments[1::2])}


def deploy(given):
    with open(given["template-file"], encoding="utf-8") as file:
        template = file.read()
    with open(given["parameter-overrides"].removeprefix("file://"), encoding="utf-8") as file:
        parameters = json.load(file)
    cloudformation = client("cloudformation")
    name = given["stack-name"]
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=template,
        Parameters=parameters,
        Capabilities=[given["capabilities"]],
    )
    waiter = cloudformation.get_waiter("stack_create_complete")
    waiter.wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def wait_until_deleted(name):
    waiter = client("cloudformation").get_waiter("stack_delete_complete")
    waiter.wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def main():
    words = sys.argv[1:]
    named = next(index for index, word in enumerate([*words, "--"]) if word.startswith("--"))
    task, given = words[:named], options(words[named:])
    if task == ["cloudformation", "deploy"]:
        deploy(given)
    elif task == ["cloudformation", "describe-stacks"]:
        answer = client("cloudformation").describe_stacks(StackName=given["stack-name"])
        print(json.dumps({"Stacks": answer["Stacks"]}, default=str))
    elif task == ["cloudformation", "delete-stack"]:
        client("cloudformation").delete_stack(StackName=given["stack-name"])
    elif task == ["cloudformation", "wait", "stack-delete-complete"]:
        wait_until_deleted(given["stack-name"])
    elif task == ["iam", "create-open-id-connect-provider"]:
        audiences = [given["client-id-list"]]
        client("iam").create_open_id_connect_provider(Url=given["url"], ClientIDList=audiences)
    elif task == ["iam", "list-open-id-connect-providers"]:
        answer = client("iam").list_open_id_connect_providers()
        print(json.dumps({"OpenIDConnectProviderList": answer["OpenIDConnectProviderList"]}))
    elif task == ["iam", "delete-open-id-connect-provider"]:
        arn = given["open-id-connect-provider-arn"]
        client("iam").delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    else:
        sys.exit(254)


main()
