package python

import (
	"embed"
	"encoding/json"
	"path"
	"strings"
	"sync"
)

//go:embed worker/boot.py worker/understudy_worker/*.py
var workerFiles embed.FS

// boot is the program that the interpreter runs. It reads the modules of the worker from the socket: nothing is written to disk, so no
// file can be removed, changed or left behind while workers start.
var boot = sync.OnceValue(func() string { return source("worker/boot.py") })

// code is the first frame of a worker: its modules by name, in JSON.
var code = sync.OnceValue(func() []byte {
	const dir = "worker/understudy_worker"
	files, err := workerFiles.ReadDir(dir)
	if err != nil {
		panic("python: embedded worker: " + err.Error())
	}
	modules := make(map[string]string, len(files))
	for _, f := range files {
		modules[strings.TrimSuffix(f.Name(), ".py")] = source(path.Join(dir, f.Name()))
	}
	out, err := json.Marshal(modules)
	if err != nil {
		panic("python: embedded worker: " + err.Error())
	}
	return out
})

func source(name string) string {
	text, err := workerFiles.ReadFile(name)
	if err != nil {
		panic("python: embedded worker: " + err.Error())
	}
	return string(text)
}

func codeMessage(b []byte) []byte { return append(b, code()...) }
