package python

import (
	"embed"
	"sync"

	"understudy/internal/child"
)

//go:embed worker/understudy_worker/*.py
var workerFiles embed.FS

// code is the first frame of a worker.
var code = sync.OnceValue(func() []byte { return child.Modules(workerFiles, "worker/understudy_worker") })

func codeMessage(b []byte) []byte { return append(b, code()...) }
