package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/store"
)

const (
	// separator joins the labels of a namespace. It sorts before every printable character, so that namespaces sort as lists do.
	separator = "\x1f"
	// behind, put after a namespace, is above all namespaces below it.
	behind = "\x20"
	// lastText is above every namespace.
	lastText = "\U0010FFFF"

	itemColumns = "namespace, key, value, created_at, updated_at, ttl, expires_at"
)

func joinNamespace(labels []string) (string, error) {
	for _, l := range labels {
		if strings.Contains(l, separator) {
			return "", fault.New(fault.Invalid, "a namespace label contains a control character")
		}
	}
	return strings.Join(labels, separator), nil
}

func splitNamespace(text string) []string { return strings.Split(text, separator) }

func scanItem(s *sqlite.Stmt) *store.Item {
	return &store.Item{
		Namespace: splitNamespace(s.ColumnText(0)),
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
	ns, err := joinNamespace(namespace)
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
	prefix, err := joinNamespace(q.Prefix)
	if err != nil {
		return nil, err
	}
	p := page{limit: q.Limit, offset: q.Offset}
	now := micros(s.now())
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		text, args := itemsOfAll, []any{now}
		if len(q.Prefix) > 0 {
			text, args = itemsBelow, []any{now, prefix, prefix + behind}
			nested, err := one(c, nextNamespace, nil, prefix, prefix+behind, now)
			if err != nil {
				return err
			}
			if !nested { // the order of the index: the page is read without the rest
				text, args = itemsOfOne, []any{now, prefix}
			}
		}
		return query(c, text, func(st *sqlite.Stmt) error {
			if !within(st.ColumnText(1), prefix) {
				return nil
			}
			if filter == nil && p.seen < p.offset {
				p.seen++
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
			in, last := p.take()
			if in {
				out = append(out, item)
			}
			if last {
				return errStop
			}
			return nil
		}, args...)
	})
	return out, err
}

// within reports whether a namespace is the prefix or below it.
func within(namespace, prefix string) bool {
	return prefix == "" || namespace == prefix || strings.HasPrefix(namespace, prefix+separator)
}

// ListNamespaces is store.Backend.ListNamespaces; in order of their labels. It jumps from namespace to namespace in the index,
// however many items each has.
func (s *Store) ListNamespaces(ctx context.Context, q store.Namespaces) (out [][]string, err error) {
	literal := q.Prefix
	if i := slices.Index(literal, "*"); i >= 0 {
		literal = literal[:i]
	}
	prefix, err := joinNamespace(literal)
	if err != nil {
		return nil, err
	}
	at, end := prefix, lastText
	if prefix != "" {
		end = prefix + behind
	}
	p := page{limit: q.Limit, offset: q.Offset}
	now := micros(s.now())
	var before []string
	visit := func(namespace string) (last bool) {
		labels := splitNamespace(namespace)
		if !within(namespace, prefix) || !matchLabels(labels, q.Prefix) {
			return false
		}
		if n := len(q.Suffix); n > 0 && (len(labels) < n || !matchLabels(labels[len(labels)-n:], q.Suffix)) {
			return false
		}
		if q.MaxDepth > 0 && len(labels) > q.MaxDepth {
			labels = labels[:q.MaxDepth]
		}
		if before != nil && slices.Equal(labels, before) { // those that are cut to the same follow each other
			return false
		}
		before = labels
		in, last := p.take()
		if in {
			out = append(out, labels)
		}
		return last
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
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

// matchLabels reports whether labels begin with a pattern, in which "*" stands for any one label.
func matchLabels(labels, pattern []string) bool {
	if len(labels) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != labels[i] {
			return false
		}
	}
	return true
}

// Apply is store.Backend.Apply.
func (s *Store) Apply(ctx context.Context, list []*store.Item) error {
	names := make([]string, len(list))
	for i, item := range list {
		var err error
		if names[i], err = joinNamespace(item.Namespace); err != nil {
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
			ns, err := joinNamespace(item.Namespace)
			if err != nil {
				return err
			}
			// Never backwards: two readers may touch an item in either order.
			if err := tx.exec("UPDATE store_items SET expires_at = ?3 WHERE namespace = ?1 AND key = ?2 AND ttl > 0 AND expires_at < ?3",
				ns, item.Key, item.ExpiresAt); err != nil {
				return fmt.Errorf("touch item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// Sweep is store.Backend.Sweep.
func (s *Store) Sweep(ctx context.Context, now time.Time) (n int, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		err := tx.exec("DELETE FROM store_items WHERE expires_at <= ?", micros(now))
		n = tx.conn.Changes()
		return err
	})
	return n, err
}

var _ store.Backend = items{}
