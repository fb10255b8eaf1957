"""What programs written for Mongoose may import, and what there is instead.

Importing it works, so that a program which only names it runs; using it says where else to look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_MQTT = "MQTT is not part of dwell; paho-mqtt or aiomqtt speak it"
_JSON = "use the standard library's json"
_RPC = "use the standard library's json with functions of your own"


def _instead(name: str, hint: str) -> Callable[..., Any]:
    def refuse(*_arguments: object, **_keywords: object) -> NoReturn:
        raise NotImplementedError(f"{name}(): {hint}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not part of dwell: {hint}."
    return refuse


class _LeftOut:
    """A class that cannot be made."""

    _hint = ""

    def __init__(self, *_arguments: object, **_keywords: object) -> None:
        raise NotImplementedError(f"{type(self).__name__}: {self._hint}")


class MqttMessage(_LeftOut):
    """Not part of dwell."""

    _hint = _MQTT


class Rpc(_LeftOut):
    """Not part of dwell."""

    _hint = _RPC


class RpcReq(_LeftOut):
    """Not part of dwell."""

    _hint = _RPC


json_get = _instead("json_get", _JSON)
json_get_bool = _instead("json_get_bool", _JSON)
json_get_long = _instead("json_get_long", _JSON)
json_get_num = _instead("json_get_num", _JSON)
json_get_str = _instead("json_get_str", _JSON)
md5 = _instead("md5", "use hashlib.md5")
sha1 = _instead("sha1", "use hashlib.sha1")
sha256 = _instead("sha256", "use hashlib.sha256")
hmac_sha256 = _instead("hmac_sha256", "use hmac.digest")
base64_encode = _instead("base64_encode", "use base64.b64encode")
base64_decode = _instead("base64_decode", "use base64.b64decode")
crc32 = _instead("crc32", "use zlib.crc32")
random_bytes = _instead("random_bytes", "use secrets.token_bytes")
random_str = _instead("random_str", "use secrets.token_urlsafe")

MG_LL_NONE = 0
MG_LL_ERROR = 1
MG_LL_INFO = 2
MG_LL_DEBUG = 3
MG_LL_VERBOSE = 4

MQTT_PROP_TYPE_BYTE = 0
MQTT_PROP_TYPE_STRING = 1
MQTT_PROP_TYPE_STRING_PAIR = 2
MQTT_PROP_TYPE_BINARY_DATA = 3
MQTT_PROP_TYPE_VARIABLE_INT = 4
MQTT_PROP_TYPE_INT = 5
MQTT_PROP_TYPE_SHORT = 6
