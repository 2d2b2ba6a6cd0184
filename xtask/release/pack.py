"""Packs a program as a function of Lambda: one executable file, called bootstrap.

The same program gives the same package: the time is the earliest that the format knows.
"""

import sys
import zipfile

program, package = sys.argv[1:]
entry = zipfile.ZipInfo("bootstrap", (1980, 1, 1, 0, 0, 0))
entry.compress_type = zipfile.ZIP_DEFLATED
entry.create_system = 3
entry.external_attr = 0o100755 << 16
with zipfile.ZipFile(package, "w") as file, open(program, "rb") as source:
    file.writestr(entry, source.read(), compresslevel=6)
