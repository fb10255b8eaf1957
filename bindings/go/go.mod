module dwell

go 1.25
