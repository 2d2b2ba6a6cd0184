"""Plays the GitHub CLI: the words of `ondeck init`'s step become requests to the stand-in."""

import base64
import json
import os
import sys
import urllib.error
import urllib.request


def request(method, path, body):
    asked = urllib.request.Request(f"{os.environ['GITHUB_API']}/{path}", method=method)
    asked.add_header("authorization", f"Bearer {os.environ['GITHUB_ADMIN']}")
    asked.add_header("user-agent", "gh")
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(asked, data) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        sys.exit(f"gh: {error.read().decode()} (HTTP {error.code})")


def fields(words):
    """The body that -f and -F describe: `a[b]=true` is {"a": {"b": true}} for -F."""
    body = {}
    for flag, word in zip(words, words[1:]):
        if flag not in ("-f", "-F"):
            continue
        name, value = word.split("=", 1)
        if flag == "-F" and value in ("true", "false"):
            value = value == "true"
        outer, _, inner = name.partition("[")
        if inner:
            body.setdefault(outer, {})[inner.rstrip("]")] = value
        else:
            body[name] = value
    return body


def option(words, name):
    return words[words.index(name) + 1]


def main(words):
    if words[:1] == ["api"]:
        words = [word for word in words[1:] if word != "--silent"]
        body = fields(words)
        method = option(words, "--method") if "--method" in words else "POST"
        path = next(word for word in words if word.startswith("repos/"))
        request(method, path, body)
    elif words[:2] == ["secret", "set"]:
        folder = f"repos/{option(words, '--repo')}/environments/{option(words, '--env')}/secrets"
        key = request("GET", f"{folder}/public-key", None)
        sealed = base64.b64encode(os.environ["GITHUB_SECRET"].encode()).decode()
        body = {"encrypted_value": sealed, "key_id": key["key_id"]}
        request("PUT", f"{folder}/{words[2]}", body)
    elif words[:2] != ["variable", "set"]:
        sys.exit(f"unknown words: {words}")


main(sys.argv[1:])
