"""The programs that are compared: one small class each, and the list of all."""

from harness.contenders.base import BODY, Contender, Running
from harness.contenders.design2009 import Design2009
from harness.contenders.edge import EdgeHit, EdgeMiss, EdgeRedis
from harness.contenders.nginx import NginxMemcached, NginxProxy, NginxReturn
from harness.contenders.plain import EngineHello, Floor, LookupFloor
from harness.contenders.unchanged import NginxFile, NginxReturn304, Unchanged

__all__ = [
    "BODY",
    "Contender",
    "Design2009",
    "EdgeHit",
    "EdgeMiss",
    "EdgeRedis",
    "EngineHello",
    "Floor",
    "LookupFloor",
    "NginxFile",
    "NginxMemcached",
    "NginxProxy",
    "NginxReturn",
    "NginxReturn304",
    "Running",
    "Unchanged",
]
