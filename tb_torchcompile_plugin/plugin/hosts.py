"""Which names may a browser use for this server?

TensorBoard answers any `Host`. A page of another site could therefore point its own name to this machine (DNS
rebinding) and read a local logdir. An address cannot be rebound. A server that is bound to all addresses, or started
with a path prefix, is public on purpose or behind a proxy. Notebook servers, whose proxies keep the name that the
browser uses, say so in the environment. A header of a proxy is no sign of one: a page can send the same.
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
# TensorBoard's own for jupyter-server-proxy, JupyterHub's, and Colab's.
_PROXIES = ("TENSORBOARD_PROXY_URL", "JUPYTERHUB_SERVICE_PREFIX", "COLAB_RELEASE_TAG")
_PORT = re.compile(r"(?<!:):\d*$")  # not the end of an IPv6 address
_LOCALHOST = re.compile(r"([\w-]+\.)*localhost")
_WILDCARDS = ("0.0.0.0", "::")


def refuse_other_hosts(request: Request, flags: Namespace | None) -> None:
    """Raise ForbiddenHost if the request names a host that does not belong to this server.

    flags: TensorBoard's, of which `host`, `bind_all` and `path_prefix` are read.
    """
    host, bound = _name(request.headers.get("Host", "")), _name(getattr(flags, "host", None) or "")
    is_told = getattr(flags, "bind_all", False) or getattr(flags, "path_prefix", "") or bound in _WILDCARDS
    if not host or is_told or any(map(os.environ.get, _PROXIES)):
        return
    allowed = {bound, *map(_name, os.environ.get(SETTING, "").split(","))}
    is_local = _is_address(host) or _LOCALHOST.fullmatch(host) or host in own_names()
    if not is_local and not {host, "*"} & allowed:
        raise ForbiddenHost(
            f"{quoted(host)} is not a name of this server",
            next_step=f"Open it as localhost, start TensorBoard with --bind_all, or set {SETTING}={host[:200]}",
        )


def _name(host: str) -> str:
    """Return a host without its port, as names are compared."""
    return _PORT.sub("", host.strip()).lower().rstrip(".")


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
