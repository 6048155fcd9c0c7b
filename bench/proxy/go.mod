module understudy-bench-proxy

go 1.26.0
