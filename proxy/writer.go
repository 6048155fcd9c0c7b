package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// writer allows other goroutines to flush an answer: timers, and the reader that finds the upstream's answer cut.
type writer struct {
	http.ResponseWriter
	mu sync.Mutex // guards ResponseWriter except Header
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// cut is a body that flushes what came before it breaks off. Otherwise the connection would be closed while bytes are still buffered.
type cut struct {
	io.ReadCloser
	w   *writer
	err error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.err == nil {
		var n int
		if n, c.err = c.ReadCloser.Read(p); n > 0 || c.err == nil {
			return n, nil
		}
	}
	if !errors.Is(c.err, io.EOF) {
		_ = c.w.FlushError()
	}
	return 0, c.err
}

// whole is a body in memory. It is written in one piece instead of pieces of the copy buffer's size.
type whole struct {
	io.Closer
	w    *writer
	body []byte
}

func (b *whole) Read([]byte) (int, error) {
	if len(b.body) > 0 {
		_, err := b.w.Write(b.body)
		if b.body = nil; err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}
