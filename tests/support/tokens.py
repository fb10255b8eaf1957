"""JSON Web Tokens, signed by Python and by openssl: neither is what the edge verifies with."""

import base64
import hashlib
import hmac
import json
import subprocess

SECRET = "0123456789abcdef0123456789abcdef"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header, claims, sign):
    """The compact form; `sign` gets the bytes that are signed."""
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{encoded(sign(signed.encode()))}"


def hs256(claims, secret=SECRET, **header):
    def sign(signed):
        return hmac.new(secret.encode(), signed, hashlib.sha256).digest()

    return token({"alg": "HS256", **header}, claims, sign)


def unsigned(claims, alg="none"):
    return token({"alg": alg}, claims, lambda signed: b"")


class KeyPair:
    """A key of openssl's; `kind` is `rsa` or `ec`."""

    OPTIONS = {
        "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        "ec": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    }
    ALG = {"rsa": "RS256", "ec": "ES256"}

    def __init__(self, folder, kind):
        self.kind = kind
        self.private = folder / f"{kind}.pem"
        self.public = folder / f"{kind}.pub.pem"
        openssl("genpkey", *self.OPTIONS[kind], "-out", self.private)
        openssl("pkey", "-in", self.private, "-pubout", "-out", self.public)

    def token(self, claims, **header):
        return token({"alg": self.ALG[self.kind], **header}, claims, self._sign)

    def _sign(self, signed):
        signature = openssl("dgst", "-sha256", "-sign", self.private, given=signed)
        return signature if self.kind == "rsa" else fixed(signature)

    def jwk(self, **members):
        der = openssl("pkey", "-pubin", "-in", self.public, "-outform", "DER")
        if self.kind == "ec":
            x, y = der[-64:-32], der[-32:]
            return {"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y), **members}
        # 2048 bits between a header of fixed length and the exponent 65537.
        n, e = der[-261:-5], der[-3:]
        return {"kty": "RSA", "n": encoded(n), "e": encoded(e), **members}


def fixed(signature):
    """The two numbers of a DER signature, 32 bytes each."""
    numbers, rest = [], signature[2:]
    for _ in range(2):
        length = rest[1]
        numbers.append(rest[2 : 2 + length].lstrip(b"\0").rjust(32, b"\0"))
        rest = rest[2 + length :]
    return b"".join(numbers)


def openssl(*arguments, given=None):
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout
