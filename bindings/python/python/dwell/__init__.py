"""Dwell: servers that wait for nothing while their clients wait for news.

`Manager` is an event loop that you poll; `AsyncManager` is one that asyncio polls. `dwell.wsgi` and
`dwell.asgi` serve applications, `dwell.memcache` has a client.
"""

from dwell._events import (
    Event,
    UrlError,
)
from dwell._helpers import (
    event_name,
    http_parse_multipart,
    http_var,
    log_get,
    log_set,
    match,
    millis,
    url_encode,
    url_host,
    url_is_ssl,
    url_pass,
    url_port,
    url_uri,
    url_user,
)
from dwell._left_out import (
    MG_LL_DEBUG,
    MG_LL_ERROR,
    MG_LL_INFO,
    MG_LL_NONE,
    MG_LL_VERBOSE,
    MQTT_PROP_TYPE_BINARY_DATA,
    MQTT_PROP_TYPE_BYTE,
    MQTT_PROP_TYPE_INT,
    MQTT_PROP_TYPE_SHORT,
    MQTT_PROP_TYPE_STRING,
    MQTT_PROP_TYPE_STRING_PAIR,
    MQTT_PROP_TYPE_VARIABLE_INT,
    MqttMessage,
    Rpc,
    RpcReq,
    base64_decode,
    base64_encode,
    crc32,
    hmac_sha256,
    json_get,
    json_get_bool,
    json_get_long,
    json_get_num,
    json_get_str,
    md5,
    random_bytes,
    random_str,
    sha1,
    sha256,
)
from dwell._native import (
    Connection,
    HttpMessage,
    Manager,
    Timer,
    TlsOpts,
    WsMessage,
    __version__,
)
from dwell.aio import AsyncManager

MG_EV_ERROR = Event.ERROR
MG_EV_OPEN = Event.OPEN
MG_EV_POLL = Event.POLL
MG_EV_RESOLVE = Event.RESOLVE
MG_EV_CONNECT = Event.CONNECT
MG_EV_ACCEPT = Event.ACCEPT
MG_EV_TLS_HS = Event.TLS_HS
MG_EV_READ = Event.READ
MG_EV_WRITE = Event.WRITE
MG_EV_CLOSE = Event.CLOSE
MG_EV_HTTP_HDRS = Event.HTTP_HDRS
MG_EV_HTTP_MSG = Event.HTTP_MSG
MG_EV_WS_OPEN = Event.WS_OPEN
MG_EV_WS_MSG = Event.WS_MSG
MG_EV_WS_CTL = Event.WS_CTL
MG_EV_MQTT_CMD = Event.MQTT_CMD
MG_EV_MQTT_MSG = Event.MQTT_MSG
MG_EV_MQTT_OPEN = Event.MQTT_OPEN
MG_EV_SNTP_TIME = Event.SNTP_TIME
MG_EV_WAKEUP = Event.WAKEUP
MG_EV_USER = Event.USER
MG_EV_HTTP_BODY = Event.HTTP_BODY
MG_EV_DRAINED = Event.DRAINED

WEBSOCKET_OP_TEXT = 1
WEBSOCKET_OP_BINARY = 2
WEBSOCKET_OP_CLOSE = 8
WEBSOCKET_OP_PING = 9
WEBSOCKET_OP_PONG = 10

__all__ = [
    "MG_EV_ACCEPT",
    "MG_EV_CLOSE",
    "MG_EV_CONNECT",
    "MG_EV_DRAINED",
    "MG_EV_ERROR",
    "MG_EV_HTTP_BODY",
    "MG_EV_HTTP_HDRS",
    "MG_EV_HTTP_MSG",
    "MG_EV_MQTT_CMD",
    "MG_EV_MQTT_MSG",
    "MG_EV_MQTT_OPEN",
    "MG_EV_OPEN",
    "MG_EV_POLL",
    "MG_EV_READ",
    "MG_EV_RESOLVE",
    "MG_EV_SNTP_TIME",
    "MG_EV_TLS_HS",
    "MG_EV_USER",
    "MG_EV_WAKEUP",
    "MG_EV_WRITE",
    "MG_EV_WS_CTL",
    "MG_EV_WS_MSG",
    "MG_EV_WS_OPEN",
    "MG_LL_DEBUG",
    "MG_LL_ERROR",
    "MG_LL_INFO",
    "MG_LL_NONE",
    "MG_LL_VERBOSE",
    "MQTT_PROP_TYPE_BINARY_DATA",
    "MQTT_PROP_TYPE_BYTE",
    "MQTT_PROP_TYPE_INT",
    "MQTT_PROP_TYPE_SHORT",
    "MQTT_PROP_TYPE_STRING",
    "MQTT_PROP_TYPE_STRING_PAIR",
    "MQTT_PROP_TYPE_VARIABLE_INT",
    "WEBSOCKET_OP_BINARY",
    "WEBSOCKET_OP_CLOSE",
    "WEBSOCKET_OP_PING",
    "WEBSOCKET_OP_PONG",
    "WEBSOCKET_OP_TEXT",
    "AsyncManager",
    "Connection",
    "Event",
    "HttpMessage",
    "Manager",
    "MqttMessage",
    "Rpc",
    "RpcReq",
    "Timer",
    "TlsOpts",
    "UrlError",
    "WsMessage",
    "__version__",
    "base64_decode",
    "base64_encode",
    "crc32",
    "event_name",
    "hmac_sha256",
    "http_parse_multipart",
    "http_var",
    "json_get",
    "json_get_bool",
    "json_get_long",
    "json_get_num",
    "json_get_str",
    "log_get",
    "log_set",
    "match",
    "md5",
    "millis",
    "random_bytes",
    "random_str",
    "sha1",
    "sha256",
    "url_encode",
    "url_host",
    "url_is_ssl",
    "url_pass",
    "url_port",
    "url_uri",
    "url_user",
]
