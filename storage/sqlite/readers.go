package sqlite

import (
	"context"
	"errors"
	"sync"

	"zombiezen.com/go/sqlite"
)

var errClosed = errors.New("the database is closed")

// readers is a pool of reading connections. The most recently used one is taken first, because its
// cache is warm.
//
// sqlitex.Pool would start a goroutine per use to watch the context. Here a connection is
// interrupted only when its context ends, which for most reads never happens.
type readers struct {
	tokens chan struct{} // one for each free connection
	closed chan struct{}

	mu   sync.Mutex
	free []*reader
}

type reader struct {
	conn      *sqlite.Conn
	interrupt chan struct{} // closing it interrupts the connection
}

// openReaders opens n connections.
func openReaders(path string, n int) (*readers, error) {
	p := &readers{tokens: make(chan struct{}, n), closed: make(chan struct{})}
	for range n {
		conn, err := connect(path, false, "")
		if err != nil {
			for _, r := range p.free {
				err = errors.Join(err, r.conn.Close())
			}
			return nil, err
		}
		p.put(&reader{conn: conn})
	}
	return p, nil
}

// read runs fn with a connection, waiting for a free one. Each query of fn sees the rows committed
// when it begins.
func (p *readers) read(ctx context.Context, fn func(conn *sqlite.Conn) error) error {
	return p.use(ctx, false, fn)
}

// snapshot is read with all queries of fn seeing the same rows.
func (p *readers) snapshot(ctx context.Context, fn func(conn *sqlite.Conn) error) error {
	return p.use(ctx, true, fn)
}

// use takes a connection, watches ctx, and returns the connection without an open transaction.
func (p *readers) use(ctx context.Context, together bool, fn func(conn *sqlite.Conn) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-p.tokens:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.closed:
		return errClosed
	}
	p.mu.Lock()
	r := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.mu.Unlock()

	unwatch := r.watch(ctx)
	defer func() {
		interrupted := unwatch()
		if interrupted && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt {
			err = context.Cause(ctx)
		}
		if !r.conn.AutocommitEnabled() {
			if e := exec(r.conn, "ROLLBACK"); err == nil { // a reader has written nothing
				err = e
			}
		}
		p.put(r)
	}()
	if together {
		if err := exec(r.conn, "BEGIN"); err != nil {
			return err
		}
	}
	return fn(r.conn)
}

// watch makes the end of ctx interrupt the connection until unwatch is called, which reports
// whether it did.
func (r *reader) watch(ctx context.Context) (unwatch func() (interrupted bool)) {
	if ctx.Done() == nil {
		return func() bool { return false }
	}
	if r.interrupt == nil {
		r.interrupt = make(chan struct{})
		r.conn.SetInterrupt(r.interrupt)
	}
	interrupt := r.interrupt
	stop := context.AfterFunc(ctx, func() { close(interrupt) })
	return func() bool {
		if stop() {
			return false
		}
		// The channel is closed or about to be, so the next watch needs a new one.
		r.interrupt = nil
		r.conn.SetInterrupt(nil)
		return true
	}
}

// put returns a connection to the pool.
func (p *readers) put(r *reader) {
	p.mu.Lock()
	p.free = append(p.free, r)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}

// close waits for the connections in use and closes all.
func (p *readers) close() error {
	close(p.closed)
	var errs []error
	for range cap(p.tokens) {
		<-p.tokens
	}
	for _, r := range p.free {
		r.conn.SetInterrupt(nil)
		errs = append(errs, r.conn.Close())
	}
	return errors.Join(errs...)
}
