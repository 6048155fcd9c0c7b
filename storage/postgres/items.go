package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/store"
)

const itemColumns = "namespace, key, value, created_at, updated_at, ttl, expires_at"

func scanItem(r *row) *store.Item {
	return &store.Item{
		Namespace: rows.SplitNamespace(r.text(0)),
		Key:       r.text(1),
		Value:     r.bytes(2),
		CreatedAt: r.time(3),
		UpdatedAt: r.time(4),
		TTL:       time.Duration(r.int(5)) * time.Microsecond,
		ExpiresAt: r.time(6),
	}
}

// Item is store.Backend.Item.
func (s *Store) Item(ctx context.Context, namespace []string, key string) (item *store.Item, err error) {
	ns, err := rows.JoinNamespace(namespace)
	if err != nil {
		return nil, err
	}
	err = s.read(ctx, func(c *reader) error {
		_, err := one(c, "SELECT "+itemColumns+" FROM store_items WHERE namespace = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)",
			func(r *row) error {
				item = scanItem(r)
				return nil
			}, ns, key, micros(s.now()))
		return err
	})
	return item, err
}

const (
	living     = "(expires_at IS NULL OR expires_at > $1)"
	itemsOfAll = "SELECT " + itemColumns + " FROM store_items WHERE " + living + " ORDER BY updated_at DESC, namespace, key"
	itemsOfOne = "SELECT " + itemColumns + " FROM store_items WHERE namespace = $2 AND " + living + " ORDER BY updated_at DESC, key"
	itemsBelow = "SELECT " + itemColumns + " FROM store_items WHERE (namespace = $2 OR namespace >= $3 AND namespace < $4) AND " + living +
		" ORDER BY updated_at DESC, namespace, key"
	nextNamespace = "SELECT namespace FROM store_items WHERE " + living + " AND namespace > $2 AND namespace < $3 ORDER BY namespace LIMIT 1"
)

// listItems is store.Backend.Items (the name is taken by the adapter). A namespace without others below it is read in order by an index.
func (s *Store) listItems(ctx context.Context, q store.Search) (out []*store.Item, err error) {
	filter, err := contain.ParseFilter(q.Filter)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "filter: %w", err)
	}
	prefix, err := rows.JoinNamespace(q.Prefix)
	if err != nil {
		return nil, err
	}
	prefix = clean(prefix)
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	now := micros(s.now())
	nested, loaded := false, 0
	if len(q.Prefix) > 0 {
		if err := s.read(ctx, func(c *reader) (err error) {
			nested, err = one(c, nextNamespace, nil, now, prefix, prefix+rows.Behind)
			return err
		}); err != nil {
			return nil, err
		}
	}
	text, args := itemsOfAll, []any{now}
	switch {
	case nested:
		text, args = itemsBelow, []any{now, prefix, prefix + rows.Separator, prefix + rows.Behind}
	case len(q.Prefix) > 0: // the order of the index: the page is read without the rest
		text, args = itemsOfOne, []any{now, prefix}
	}
	search := func(c *reader) error {
		first := 1024
		if q.Limit > 0 {
			first = q.Offset + q.Limit
		}
		return c.walk(first, text, func(r *row) error {
			if filter == nil && p.Skip() {
				return nil
			}
			item := scanItem(r)
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
	err = s.scan(ctx, rows.NarrowItems, func(c *reader) error {
		if prefix != "" {
			found, err := one(c, "SELECT 1 FROM store_items WHERE namespace = $1 AND (expires_at IS NULL OR expires_at > $2) LIMIT 1", nil, prefix, now)
			if err != nil || found && visit(prefix) {
				return err
			}
		}
		for {
			found, err := one(c, nextNamespace, func(r *row) error {
				at = r.text(0)
				return nil
			}, now, at, end)
			if err != nil || !found || visit(at) {
				return err
			}
		}
	})
	return out, err
}

const (
	deleteItem = "DELETE FROM store_items WHERE namespace = $1 AND key = $2"
	// An item that has expired is gone, swept or not: what takes its place is new.
	putItem = "INSERT INTO store_items (" + itemColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (namespace, key) DO UPDATE SET value = $3, updated_at = $5, ttl = $6, expires_at = $7,
		created_at = CASE WHEN store_items.expires_at <= $8 THEN $4 ELSE store_items.created_at END`
	// Never backwards: two readers may touch an item in either order. One that was put with another TTL since it was read has its own expiry.
	touchItem = "UPDATE store_items SET expires_at = $3 WHERE namespace = $1 AND key = $2 AND ttl > 0 AND ttl = $4 AND expires_at < $3"
)

// inOrder gives items in the order of their keys, and with each its namespace as text: whoever writes several locks them in the same order.
// Writes of the same item stay in theirs.
func inOrder(list []*store.Item) (sorted []*store.Item, names map[*store.Item]string, err error) {
	sorted, names = slices.Clone(list), make(map[*store.Item]string, len(list))
	for _, item := range list {
		if names[item], err = rows.JoinNamespace(item.Namespace); err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(sorted, func(a, b *store.Item) int {
		return cmp.Or(strings.Compare(names[a], names[b]), strings.Compare(a.Key, b.Key))
	})
	return sorted, names, nil
}

// Apply is store.Backend.Apply.
func (s *Store) Apply(ctx context.Context, list []*store.Item) error {
	list, names, err := inOrder(list)
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx *Tx) error {
		for _, item := range list {
			var err error
			if item.Value == nil {
				err = tx.exec(deleteItem, names[item], item.Key)
			} else {
				err = tx.exec(putItem, names[item], item.Key, item.Value, micros(item.CreatedAt), micros(item.UpdatedAt), item.TTL.Microseconds(), item.ExpiresAt,
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
	list, names, err := inOrder(list)
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx *Tx) error {
		for _, item := range list {
			if err := tx.exec(touchItem, names[item], item.Key, item.ExpiresAt, item.TTL.Microseconds()); err != nil {
				return fmt.Errorf("touch item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// sweepItems takes expired items in bites, and leaves alone what somebody is writing.
const sweepItems = "DELETE FROM store_items WHERE (namespace, key) IN (SELECT namespace, key FROM store_items WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)"

// Sweep is store.Backend.Sweep.
func (s *Store) Sweep(ctx context.Context, now time.Time, limit int) (n int, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		rows, err := tx.affected(sweepItems, micros(now), limit)
		n = int(rows)
		return err
	})
	return n, err
}

var _ store.Backend = items{}
