"""Lints the policies with parliament. Called by `cargo xtask policies` with the file that a test has
written, in which the placeholders are replaced."""

import json
import sys

from parliament import analyze_policy_string

# parliament wants all resource types of a launch in one statement. Ours are in several, with
# conditions of their own.
LAUNCHES = {"ec2:CreateFleet", "ec2:RunInstances"}


def is_split_launch(finding):
    return finding.issue == "RESOURCE_MISMATCH" and all(
        detail["action"] in LAUNCHES for detail in finding.detail
    )


with open(sys.argv[1], encoding="utf-8") as file:
    policies = json.load(file)["policies"]
found = 0
for role, policy in sorted(policies.items()):
    for finding in analyze_policy_string(json.dumps(policy)).findings:
        if not is_split_launch(finding):
            found += 1
            print(f"{role}: {finding.issue}: {finding.detail}", file=sys.stderr)
print(f"{len(policies)} policies, {found} findings")
sys.exit(1 if found or not policies else 0)
