module kafkalite.io/pause

go 1.24.0
