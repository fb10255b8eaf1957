"""Makes `harness` importable from the tests: pytest puts this file's directory on the path."""
