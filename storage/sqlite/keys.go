package sqlite

import (
	"context"
	"errors"
	"fmt"

	"understudy/storage/internal/relational"
)

// Keys are the API keys of a data folder and its audit log, also while a server runs on it. It is an auth.KeyStore and an audit.Store.
type Keys struct {
	relational.Store
	rows *Store
}

// OpenKeys opens the API keys of a data folder without its lock. ErrNoFolder when there is no database yet, ErrOlder when its schema is older. Call Close after use.
func OpenKeys(ctx context.Context, dir string) (*Keys, error) {
	s, path, err := openBeside(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Keys{relational.NewStore(guest{database{s}, path}, s.now), s}, nil
}

// Close closes the connections.
func (k *Keys) Close() error { return k.rows.readers.close() }

// guest is a database that another process may be working on. It is for tables that no server has in memory.
type guest struct {
	database
	path string
}

// Write implements relational.DB on a connection of its own. It waits for the transaction of the server.
func (g guest) Write(ctx context.Context, fn func(*relational.Tx) error) (err error) {
	conn, err := connect(g.path, true, "full")
	if err != nil {
		return fmt.Errorf("open %s: %w", g.path, classify(err))
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetInterrupt(ctx.Done())
	if err := exec(conn, "BEGIN IMMEDIATE"); err != nil {
		return classify(err)
	}
	if err := fn(&newTx(conn, nil).Tx); err != nil {
		conn.SetInterrupt(nil)
		return errors.Join(err, exec(conn, "ROLLBACK"))
	}
	return classify(exec(conn, "COMMIT"))
}
