"""Certificates for the tests, made by openssl."""

import subprocess

# Of a certificate that is no authority.
END_ENTITY = ("-addext", "basicConstraints=critical,CA:FALSE")


def make_certificate(folder, name, *names, extra=(), dates=None):
    """A self-signed certificate for these names or addresses; returns it and its key.

    `dates` are the first and the last second of its validity, as `YYMMDDHHMMSSZ`.
    """
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    alternatives = ",".join(f"{'IP' if one[0].isdigit() else 'DNS'}:{one}" for one in names)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", f"/CN={names[0]}"]
    if dates is None:
        extensions = ["-addext", f"subjectAltName={alternatives}", *extra]
        arguments = ["req", "-x509", *new_key, "-days", "2", *subject, *extensions]
        _openssl(*arguments, "-keyout", key, "-out", certificate)
        return certificate, key
    request, home = folder / f"{name}.csr", folder / f"{name}-ca"
    _openssl("req", "-new", *new_key, *subject, "-keyout", key, "-out", request)
    home.mkdir()
    (home / "index").touch()
    (home / "conf").write_text(
        "[ca]\ndefault_ca=d\n"
        f"[d]\ndatabase={home}/index\nnew_certs_dir={home}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
        f"[e]\nsubjectAltName={alternatives}\n"
    )
    first, last = dates
    _openssl(
        "ca", "-config", home / "conf", "-batch", "-selfsign", "-keyfile", key, "-in", request,
        "-extensions", "e", "-startdate", first, "-enddate", last, "-notext", "-out", certificate,
    )  # fmt: skip
    return certificate, key


def make_server(folder, name, authority, *names):
    """A server's certificate of this authority, and its key; `names` as of `make_client`."""
    return make_client(folder, name, authority, names=names, usage="serverAuth")


def make_client(folder, name, authority, days="2", subject=None, names=(), usage="clientAuth"):
    """A client's certificate of this authority, and its key.

    `subject` is as openssl takes it, by default the name alone. `names` are alternative names with
    their kinds, such as `DNS:a.test`.
    """
    certificate, key, request = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
    extensions = folder / f"{name}.ext"
    lines = [f"extendedKeyUsage={usage}", "basicConstraints=critical,CA:FALSE"]
    if names:
        lines.append("subjectAltName=" + ",".join(names))
    extensions.write_text("\n".join([*lines, ""]))
    subject = f"/CN={name}" if subject is None else subject
    for command in (
        ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-utf8", "-subj", subject, "-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1], "-days",
         days, "-set_serial", "7", "-extfile", extensions, "-out", certificate],
    ):  # fmt: skip
        _openssl(*command)
    return certificate, key


def make_authority(folder, name):
    """A self-signed certificate of an authority, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate,
    )  # fmt: skip
    return certificate, key


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
