"""Local paths and object storage under one interface: addresses, file systems, atomic writes, locks."""

from __future__ import annotations

from tracekit.storage.address import STDIN as STDIN
from tracekit.storage.address import Kind as Kind
from tracekit.storage.address import expand as expand
from tracekit.storage.address import is_address as is_address
from tracekit.storage.address import kind as kind
from tracekit.storage.address import parse as parse
from tracekit.storage.atomic import fetch as fetch
from tracekit.storage.atomic import move as move
from tracekit.storage.atomic import put as put
from tracekit.storage.filesystems import reason as reason
from tracekit.storage.remote import Place as Place
from tracekit.storage.remote import RemotePath as RemotePath
from tracekit.storage.remote import inside as inside
