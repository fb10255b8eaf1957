from harness.contenders import nginx


def test_one_server_needs_no_placement() -> None:
    block = nginx.upstream("cache", [11211], keepalive=True)
    assert "hash" not in block
    assert "server 127.0.0.1:11211 max_fails=0;" in block
    assert "keepalive 128;" in block


def test_two_servers_are_placed_by_key() -> None:
    block = nginx.upstream("cache", [1, 2], keepalive=False)
    assert "hash $memcached_key consistent;" in block
    assert "keepalive" not in block
