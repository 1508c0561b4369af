"""Which names may a browser use for this server?

TensorBoard answers any `Host`. A page of another site could therefore point its own name to this machine (DNS
rebinding) and read a local logdir. An address cannot be rebound. A server that is bound to all addresses, or started
with a path prefix, is public on purpose or behind a proxy.
"""

import ipaddress
import os
import re
import socket
from argparse import Namespace
from functools import cache

from werkzeug import Request

from tb_torchcompile_plugin.errors import ForbiddenHost, quoted

SETTING = "TB_TORCHCOMPILE_HOSTS"  # more names, separated by commas; `*` allows all
_PORT = re.compile(r":\d*$")
_WILDCARDS = ("0.0.0.0", "::")


def refuse_other_hosts(request: Request, flags: Namespace | None) -> None:
    """Raise ForbiddenHost if the request names a host that does not belong to this server.

    flags: TensorBoard's, of which `host`, `bind_all` and `path_prefix` are read.
    """
    host = _PORT.sub("", request.headers.get("Host", "")).lower().rstrip(".")
    bound = getattr(flags, "host", None) or ""
    is_open = getattr(flags, "bind_all", False) or getattr(flags, "path_prefix", "") or bound in _WILDCARDS
    if not host or is_open or _is_address(host) or host == "localhost" or host.endswith(".localhost"):
        return
    more = {name.strip().lower() for name in os.environ.get(SETTING, "").split(",")}
    if host != bound.lower() and not {host, "*"} & more and host not in own_names():
        raise ForbiddenHost(
            f"{quoted(host)} is not a name of this server",
            next_step=f"Open it as localhost, start TensorBoard with --bind_all, or set {SETTING}={host[:200]}",
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


@cache
def own_names() -> set[str]:
    """Return the names of this machine."""
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names | {name.partition(".")[0] for name in names}
