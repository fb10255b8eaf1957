"""The side-by-side benchmark of Dwell and its peers; `bench/README.md` is the method."""
