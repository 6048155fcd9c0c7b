package proxy

import (
	"io"
	"net/http"
	"sync"
)

// writer lets an answer be flushed from elsewhere than it is written: timers do it, and whoever finds the upstream's answer cut.
type writer struct {
	http.ResponseWriter
	mu sync.Mutex // guards all use of ResponseWriter but for Header
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

// cut is a body that sends on what came before it breaks off. Without it the connection would be closed over bytes that wait in buffers.
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
	if c.err != io.EOF {
		_ = c.w.FlushError()
	}
	return 0, c.err
}

// whole is a body that is in memory. Who reads it finds it written: in one piece, and not in as many as the reader's buffer is small.
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
