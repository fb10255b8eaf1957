"""Rules of Dwell's HTTP interface, checked from outside."""
