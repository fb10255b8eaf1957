"""nginx, which writes into a folder of the test alone."""

import shutil

import pytest

from support.process import Process


def start(folder, cleanup, http, *addresses):
    """Starts nginx with `http` in the block of that name; skips the test where there is none."""
    binary = shutil.which("nginx")
    if binary is None:
        pytest.skip("nginx is not installed")
    (folder / "nginx.conf").write_text(
        f"""
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
user root;
events {{ }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    {http}
}}
"""
    )
    process = Process([binary, "-c", folder / "nginx.conf"], folder / "nginx.log")
    cleanup.callback(process.stop)
    return process.start_listening(*addresses)
