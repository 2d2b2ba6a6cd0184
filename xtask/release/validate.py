"""Validates a bill of materials against the schema of CycloneDX, which the library contains."""

import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

with open(sys.argv[1], encoding="utf-8") as file:
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read())
if problem:
    sys.exit(str(problem))
