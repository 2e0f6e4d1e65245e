"""Where runs and traces lie: a path of this machine, or an address on object storage that answers as one.

`address` reads and spells what people type, `remote` is the path on object storage, `filesystems` connects,
`failures` says in a line why that did not work, `whole` puts a file in place so that nobody sees half of it.
"""

from __future__ import annotations

from .address import expand, is_address, parse
from .failures import reason
from .remote import Place, RemotePath, Stat
from .whole import put

__all__ = ["Place", "RemotePath", "Stat", "expand", "is_address", "parse", "put", "reason"]
