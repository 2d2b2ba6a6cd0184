#!/bin/bash
# Keeps what jobs are to see of the environment of whoever configures the runner.
[[ -f .env ]] || : > .env
for name in LANG JAVA_HOME; do
    if [[ -n ${!name} ]] && ! grep -q "^$name=" .env; then
        echo "$name=${!name}" >> .env
    fi
done
echo "$PATH" > .path
