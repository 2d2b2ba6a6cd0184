"""Leaves of GitHub's description what ondeck uses, with the schemas that it refers to."""

import json
import re
import sys

WANTED = re.compile(
    r"/app/installations/\{installation_id\}/access_tokens"
    r"|/(repos/\{owner\}/\{repo\}|orgs/\{org\})/installation"
    r"|/(repos/\{owner\}/\{repo\}|orgs/\{org\})/actions/runners(/[^/]+)?"
    r"|/repos/\{owner\}/\{repo\}/actions/runs(/\{run_id\}(/jobs|/rerun-failed-jobs)?)?"
    r"|/repos/\{owner\}/\{repo\}/actions/jobs/\{job_id\}/rerun"
    r"|/repos/\{owner\}/\{repo\}/releases/(latest|tags/\{tag\})"
    r"|/repos/\{owner\}/\{repo\}/environments/\{environment_name\}"
    r"(/deployment-branch-policies|/secrets/(public-key|\{secret_name\}))?"
)
# Documentation, which makes up most of the description.
PROSE = {"description", "summary", "example", "examples", "externalDocs", "tags", "x-github"}


def stripped(node, names=False):
    """Remove prose. Below `names`, keys are field names, even if they look like prose keys."""
    if isinstance(node, list):
        return [stripped(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: stripped(value, key in ("properties", "schemas", "parameters", "responses", "paths"))
        for key, value in node.items()
        if names or key not in PROSE
    }


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        whole = json.load(file)
    paths = {path: item for path, item in whole["paths"].items() if WANTED.fullmatch(path)}
    paths = stripped(paths, True)
    components = {}
    open_references = set(references(paths))
    seen = set()
    while open_references - seen:
        reference = (open_references - seen).pop()
        seen.add(reference)
        _, _, kind, name = reference.split("/")
        found = stripped(whole["components"][kind][name])
        components.setdefault(kind, {})[name] = found
        open_references.update(references(found))
    if not paths:
        sys.exit("none of the paths is in the description")
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"paths": paths, "components": components}, file, sort_keys=True)


main(sys.argv[1], sys.argv[2])
