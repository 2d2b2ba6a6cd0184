#!/bin/bash
# Saves the part of the configuring user's environment that jobs get.
[[ -f .env ]] || : > .env
for name in LANG JAVA_HOME; do
    if [[ -n ${!name} ]] && ! grep -q "^$name=" .env; then
        echo "$name=${!name}" >> .env
    fi
done
echo "$PATH" > .path
