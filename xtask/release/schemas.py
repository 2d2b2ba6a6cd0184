"""Checks that the given files are JSON schemas of the dialect that they name."""

import json
import sys

import jsonschema

for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        schema = json.load(file)
    if "$schema" not in schema:
        sys.exit(f"{name}: no dialect: $schema")
    dialect = jsonschema.validators.validator_for(schema, default=None)
    if dialect is None:
        sys.exit(f"{name}: unknown dialect: {schema['$schema']}")
    try:
        dialect.check_schema(schema)
    except jsonschema.SchemaError as error:
        sys.exit(f"{name}: {error.json_path}: {error.message}")
