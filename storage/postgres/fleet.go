package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/internal/fleet"
)

const (
	putServer  = "INSERT INTO servers (server, at, body) VALUES ($1, $2, $3) ON CONFLICT (server) DO UPDATE SET at = excluded.at, body = excluded.body"
	putLines   = "INSERT INTO server_logs (server, at, lines) VALUES ($1, $2, $3)"
	manyLines  = "DELETE FROM server_logs WHERE id IN (SELECT id FROM server_logs WHERE server = $1 ORDER BY id DESC OFFSET $2)"
	oldLines   = "DELETE FROM server_logs WHERE id IN (SELECT id FROM server_logs WHERE at < $1 ORDER BY at LIMIT 1000)"
	allServers = "SELECT server, at, body FROM servers ORDER BY server"
	// liveServers are those whose last report is younger than a number of microseconds, by the clock of the database.
	liveServers = "SELECT server, at, body FROM servers WHERE at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1 ORDER BY server"
	newLines    = "SELECT server, at, lines FROM server_logs WHERE at > $1 ORDER BY at DESC LIMIT $2"
	leave       = "DELETE FROM servers WHERE server = $1 OR at < $2"
)

var _ fleet.Store = (*Store)(nil)

// Beat implements fleet.Store.
func (s *Store) Beat(ctx context.Context, r *fleet.Report, batches int, logsBefore time.Time) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := tx.exec(putServer, r.Server, r.At.UnixMicro(), r.Body); err != nil || r.Lines == nil {
			return err
		}
		if err := tx.exec(putLines, r.Server, r.At.UnixMicro(), r.Lines); err != nil {
			return err
		}
		if err := tx.exec(manyLines, r.Server, batches); err != nil {
			return err
		}
		return tx.exec(oldLines, logsBefore.UnixMicro())
	})
}

// Servers implements fleet.Store.
func (s *Store) Servers(ctx context.Context) (list []fleet.Report, err error) {
	err = s.read(ctx, func(q *reader) error {
		list = nil
		return q.query(allServers, func(r *row) error {
			list = append(list, fleet.Report{Server: r.Text(0), At: r.Time(1), Body: r.Bytes(2)})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	return list, nil
}

// Lines implements fleet.Store.
func (s *Store) Lines(ctx context.Context, after time.Time, limit int) (list []fleet.Report, err error) {
	err = s.read(ctx, func(q *reader) error {
		list = nil
		return q.query(newLines, func(r *row) error {
			list = append(list, fleet.Report{Server: r.Text(0), At: r.Time(1), Lines: r.Bytes(2)})
			return nil
		}, after.UnixMicro(), limit)
	})
	if err != nil {
		return nil, fmt.Errorf("logs of servers: %w", err)
	}
	return list, nil
}

// Leave implements fleet.Store.
func (s *Store) Leave(ctx context.Context, server string, before time.Time) error {
	return s.write(ctx, func(tx *Tx) error { return tx.exec(leave, server, before.UnixMicro()) })
}
