package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/store"
)

const itemColumns = "namespace, key, value, created_at, updated_at, ttl, expires_at"

func scanItem(s *sqlite.Stmt) *store.Item {
	return &store.Item{
		Namespace: rows.SplitNamespace(s.ColumnText(0)),
		Key:       s.ColumnText(1),
		Value:     columnBytes(s, 2),
		CreatedAt: columnTime(s, 3),
		UpdatedAt: columnTime(s, 4),
		TTL:       time.Duration(s.ColumnInt64(5)) * time.Microsecond,
		ExpiresAt: columnTime(s, 6),
	}
}

// Item is store.Backend.Item.
func (s *Store) Item(ctx context.Context, namespace []string, key string) (item *store.Item, err error) {
	ns, err := rows.JoinNamespace(namespace)
	if err != nil {
		return nil, err
	}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT "+itemColumns+" FROM store_items WHERE namespace = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)",
			func(st *sqlite.Stmt) error {
				item = scanItem(st)
				return nil
			}, ns, key, micros(s.now()))
		return err
	})
	return item, err
}

const (
	itemsOfAll = "SELECT rowid, namespace FROM store_items WHERE expires_at IS NULL OR expires_at > ? " +
		"ORDER BY updated_at DESC, namespace, key"
	itemsOfOne = "SELECT rowid, namespace FROM store_items WHERE namespace = ?2 AND (expires_at IS NULL OR expires_at > ?1) " +
		"ORDER BY updated_at DESC, key"
	itemsBelow = "SELECT rowid, namespace FROM store_items WHERE namespace >= ?2 AND namespace < ?3 " +
		"AND (expires_at IS NULL OR expires_at > ?1) ORDER BY updated_at DESC, namespace, key"
	nextNamespace = "SELECT namespace FROM store_items WHERE namespace > ?1 AND namespace < ?2 " +
		"AND (expires_at IS NULL OR expires_at > ?3) ORDER BY namespace LIMIT 1"
)

// listItems is store.Backend.Items (the name is taken by the adapter). It walks the items below the prefix in order by an index
// alone, and reads a value only to filter or to return it.
func (s *Store) listItems(ctx context.Context, q store.Search) (out []*store.Item, err error) {
	filter, err := contain.ParseFilter(q.Filter)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "filter: %w", err)
	}
	prefix, err := rows.JoinNamespace(q.Prefix)
	if err != nil {
		return nil, err
	}
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	now := micros(s.now())
	nested, loaded := false, 0
	if len(q.Prefix) > 0 {
		if err := s.read(ctx, func(c *sqlite.Conn) (err error) {
			nested, err = one(c, nextNamespace, nil, prefix, prefix+rows.Behind, now)
			return err
		}); err != nil {
			return nil, err
		}
	}
	text, args := itemsOfAll, []any{now}
	switch {
	case nested:
		text, args = itemsBelow, []any{now, prefix, prefix + rows.Behind}
	case len(q.Prefix) > 0: // the order of the index: the page is read without the rest
		text, args = itemsOfOne, []any{now, prefix}
	}
	search := func(c *sqlite.Conn) error {
		return query(c, text, func(st *sqlite.Stmt) error {
			if !rows.Within(st.ColumnText(1), prefix) {
				return nil
			}
			if filter == nil && p.Skip() {
				return nil
			}
			var item *store.Item
			if _, err := one(c, "SELECT "+itemColumns+" FROM store_items WHERE rowid = ?", func(st *sqlite.Stmt) error {
				item = scanItem(st)
				return nil
			}, st.ColumnInt64(0)); err != nil {
				return err
			}
			if !filter.Match(item.Value) {
				return nil
			}
			in, last := p.Take()
			if in {
				if loaded += len(item.Value); q.Bytes > 0 && loaded > q.Bytes {
					item.Value = nil
				}
				out = append(out, item)
			}
			if last {
				return errStop
			}
			return nil
		}, args...)
	}
	if rows.ScansItems(q, filter != nil, nested) {
		err = s.scan(ctx, rows.NarrowItems, search)
	} else {
		err = s.snapshot(ctx, search)
	}
	return out, err
}

// ListNamespaces is store.Backend.ListNamespaces; in order of their labels. It jumps from namespace to namespace in the index,
// however many items each has.
func (s *Store) ListNamespaces(ctx context.Context, q store.Namespaces) (out [][]string, err error) {
	literal := q.Prefix
	if i := slices.Index(literal, "*"); i >= 0 {
		literal = literal[:i]
	}
	prefix, err := rows.JoinNamespace(literal)
	if err != nil {
		return nil, err
	}
	at, end := prefix, rows.LastText
	if prefix != "" {
		end = prefix + rows.Behind
	}
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	now := micros(s.now())
	var before []string
	visit := func(namespace string) (last bool) {
		labels := rows.SplitNamespace(namespace)
		if !rows.Within(namespace, prefix) || !rows.MatchLabels(labels, q.Prefix) {
			return false
		}
		if n := len(q.Suffix); n > 0 && (len(labels) < n || !rows.MatchLabels(labels[len(labels)-n:], q.Suffix)) {
			return false
		}
		if q.MaxDepth > 0 && len(labels) > q.MaxDepth {
			labels = labels[:q.MaxDepth]
		}
		if before != nil && slices.Equal(labels, before) { // those that are cut to the same follow each other
			return false
		}
		before = labels
		in, last := p.Take()
		if in {
			out = append(out, labels)
		}
		return last
	}
	err = s.scan(ctx, rows.NarrowItems, func(c *sqlite.Conn) error {
		if prefix != "" {
			found, err := one(c, "SELECT 1 FROM store_items WHERE namespace = ? AND (expires_at IS NULL OR expires_at > ?) LIMIT 1", nil, prefix, now)
			if err != nil || found && visit(prefix) {
				return err
			}
		}
		for {
			found, err := one(c, nextNamespace, func(st *sqlite.Stmt) error {
				at = st.ColumnText(0)
				return nil
			}, at, end, now)
			if err != nil || !found || visit(at) {
				return err
			}
		}
	})
	return out, err
}

// Apply is store.Backend.Apply.
func (s *Store) Apply(ctx context.Context, list []*store.Item) error {
	names := make([]string, len(list))
	for i, item := range list {
		var err error
		if names[i], err = rows.JoinNamespace(item.Namespace); err != nil {
			return err
		}
	}
	return s.write(ctx, func(tx *Tx) error {
		for i, item := range list {
			var err error
			if item.Value == nil {
				err = tx.exec("DELETE FROM store_items WHERE namespace = ? AND key = ?", names[i], item.Key)
			} else {
				// An item that has expired is gone, swept or not: what takes its place is new.
				err = tx.exec("INSERT INTO store_items ("+itemColumns+`) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
					ON CONFLICT (namespace, key) DO UPDATE SET value = ?3, updated_at = ?5, ttl = ?6, expires_at = ?7,
					created_at = iif(expires_at <= ?8, ?4, created_at)`,
					names[i], item.Key, item.Value, micros(item.CreatedAt), micros(item.UpdatedAt), item.TTL.Microseconds(), item.ExpiresAt,
					micros(s.now()))
			}
			if err != nil {
				return fmt.Errorf("item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// Touch is store.Backend.Touch. The new expiry is that of the items given.
func (s *Store) Touch(ctx context.Context, list []*store.Item) error {
	return s.write(ctx, func(tx *Tx) error {
		for _, item := range list {
			ns, err := rows.JoinNamespace(item.Namespace)
			if err != nil {
				return err
			}
			// Never backwards: two readers may touch an item in either order. One that was put with another TTL since it was read has its own expiry.
			if err := tx.exec("UPDATE store_items SET expires_at = ?3 WHERE namespace = ?1 AND key = ?2 AND ttl > 0 AND ttl = ?4 AND expires_at < ?3",
				ns, item.Key, item.ExpiresAt, item.TTL.Microseconds()); err != nil {
				return fmt.Errorf("touch item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

const sweepItems = "DELETE FROM store_items WHERE rowid IN (SELECT rowid FROM store_items WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"

// Sweep is store.Backend.Sweep.
func (s *Store) Sweep(ctx context.Context, now time.Time, limit int) (n int, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		err := tx.exec(sweepItems, micros(now), limit)
		n = tx.conn.Changes()
		return err
	})
	return n, err
}

var _ store.Backend = items{}
