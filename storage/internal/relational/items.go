package relational

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/access"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/store"
)

// itemColumns are the columns of store_items.
const itemColumns = "namespace, key, value, created_at, updated_at, ttl, expires_at, indexed"

// scanItem reads a row of itemColumns.
func scanItem(r Row) *store.Item {
	return &store.Item{
		Namespace: rows.SplitNamespace(r.Text(0)),
		Key:       r.Text(1),
		Value:     r.Bytes(2),
		CreatedAt: r.Time(3),
		UpdatedAt: r.Time(4),
		TTL:       time.Duration(r.Int(5)) * time.Microsecond,
		ExpiresAt: r.Time(6),
		Index:     r.Bytes(7),
	}
}

// itemArgs returns the values of itemColumns.
func itemArgs(namespace string, i *store.Item) []any {
	var index any
	if i.Index != nil {
		index = string(i.Index)
	}
	return []any{namespace, i.Key, i.Value, micros(i.CreatedAt), micros(i.UpdatedAt), i.TTL.Microseconds(), i.ExpiresAt, index}
}

// living is true for items that have not expired; $1 is the current time.
const living = "(expires_at IS NULL OR expires_at > $1)"

// searchItems returns a search that walks an index alone on SQLite, and reads the value of an item
// only to filter or to return it.
func searchItems(rest string) Statement {
	return differing("SELECT "+itemColumns+" FROM store_items WHERE "+living+rest, "SELECT rowid FROM store_items WHERE "+living+rest)
}

// namespaceAt selects the first namespace at a place and before $3.
func namespaceAt(place string) string {
	return "SELECT i.namespace FROM store_items i WHERE " + living + " AND i.namespace " + place + " AND i.namespace < $3 ORDER BY i.namespace LIMIT 1"
}

var (
	ItemsOfAll = searchItems(" ORDER BY updated_at DESC, namespace, key")
	ItemsOfOne = searchItems(" AND namespace = $2 ORDER BY updated_at DESC, key")
	ItemsBelow = searchItems(" AND namespace >= $2 AND namespace < $4 AND (namespace = $2 OR namespace >= $3) ORDER BY updated_at DESC, namespace, key")
	itemAt     = same("SELECT " + itemColumns + " FROM store_items WHERE rowid = $1")

	selectItem    = same("SELECT " + itemColumns + " FROM store_items WHERE " + living + " AND namespace = $2 AND key = $3")
	itemsAfter    = same("SELECT " + itemColumns + " FROM store_items WHERE " + living + " AND (namespace, key) > ($2, $3) ORDER BY namespace, key LIMIT $4")
	NextNamespace = same(namespaceAt("> $2"))
	// ListNamespaces jumps from namespace to namespace in the index, however many items each has. The last row is NULL.
	ListNamespaces = same("WITH RECURSIVE list (namespace) AS (SELECT (" + namespaceAt(">= $2") + ") UNION ALL " +
		"SELECT (" + namespaceAt("> list.namespace") + ") FROM list WHERE list.namespace IS NOT NULL) SELECT namespace FROM list")

	deleteItem = same("DELETE FROM store_items WHERE namespace = $1 AND key = $2")
	// An expired item is gone, whether or not it was swept: its successor gets a new created_at.
	putItem = same(insertInto("store_items", itemColumns+", embedding") + ` ON CONFLICT (namespace, key) DO UPDATE SET value = $3, updated_at = $5, ttl = $6, expires_at = $7,
		indexed = $8, embedding = $9, created_at = CASE WHEN store_items.expires_at <= $10 THEN $4 ELSE store_items.created_at END`)
	// swapItem and dropItem change an item that is as it was read, and putNew one that there is not; putNew has the parameters of putItem.
	swapItem = same("UPDATE store_items SET value = $3, updated_at = $4, ttl = $5, expires_at = $6, indexed = $7, embedding = $8 WHERE namespace = $1 AND key = $2 AND updated_at = $9")
	dropItem = same("DELETE FROM store_items WHERE namespace = $1 AND key = $2 AND updated_at = $3")
	putNew   = putItem.Then(same(" WHERE store_items.expires_at <= $10"))
	// The expiry never goes back, because two readers may touch an item in either order. An item
	// put with another TTL since it was read keeps its own.
	touchItem = same("UPDATE store_items SET expires_at = $3 WHERE namespace = $1 AND key = $2 AND ttl > 0 AND ttl = $4 AND expires_at < $3")
	// SweepItems deletes expired items in batches, and skips rows that are being written.
	SweepItems = differing("DELETE FROM store_items WHERE ctid = ANY(ARRAY("+ // made once, as in takeList
		"SELECT ctid FROM store_items WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING namespace, key",
		"DELETE FROM store_items WHERE rowid IN (SELECT rowid FROM store_items WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) RETURNING namespace, key")
)

// Item implements store.Backend.
func (s itemStore) Item(ctx context.Context, namespace []string, key string) (*store.Item, error) {
	ns, err := rows.JoinNamespace(namespace)
	if err != nil {
		return nil, err
	}
	return from(ctx, s.db.Read, func(q Querier) (*store.Item, error) {
		item, _, err := first(q, selectItem, scanItem, micros(s.now()), ns, key)
		return item, err
	})
}

// ItemsAfter implements transfer.Target.
func (s itemStore) ItemsAfter(ctx context.Context, namespace []string, key string, limit, bytes int) ([]*store.Item, error) {
	return from(ctx, s.db.Snapshot, func(q Querier) ([]*store.Item, error) {
		size := func(i *store.Item) int { return len(i.Value) }
		return within(q, bytes, size, itemsAfter, scanItem, micros(s.now()), strings.Join(namespace, rows.Separator), key, limit)
	})
}

// SearchItems implements the search of store.Backend. A namespace without nested ones is read in
// order by an index.
func (s itemStore) SearchItems(ctx context.Context, search store.Search) (out []*store.Item, err error) {
	filter, err := contain.ParseFilter(search.Filter)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "filter: %w", err)
	}
	prefix, err := rows.JoinNamespace(search.Prefix)
	if err != nil {
		return nil, err
	}
	reach := access.Reach(ctx, access.Store)
	matches := func(item *store.Item) bool { return filter.Match(item.Value) && reach.Match(item.Value) }
	p := rows.Page{Limit: search.Limit, Offset: search.Offset}
	now := micros(s.now())
	nested, loaded := false, 0
	add := func(item *store.Item) {
		if loaded += len(item.Value); search.Bytes > 0 && loaded > search.Bytes {
			item.Value = nil
		}
		out = append(out, item)
	}
	if search.Near != nil {
		err := s.nearest(ctx, search, prefix, func() { p, loaded, out = rows.Page{Limit: search.Limit, Offset: search.Offset}, 0, nil }, func(item *store.Item) error {
			if !matches(item) {
				return nil
			}
			return take(&p, func() { add(item) })
		})
		return out, err
	}
	if len(search.Prefix) > 0 {
		if err := s.db.Read(ctx, func(q Querier) (err error) {
			nested, err = has(q, NextNamespace, now, prefix, prefix+rows.Behind)
			return err
		}); err != nil {
			return nil, err
		}
	}
	text, args := ItemsOfAll, []any{now}
	switch {
	case nested:
		text, args = ItemsBelow, []any{now, prefix, prefix + rows.Separator, prefix + rows.Behind}
	case len(search.Prefix) > 0: // the index has this order, so only the page is read
		text, args = ItemsOfOne, []any{now, prefix}
	}
	read := func(q Querier) error {
		return q.Walk(expected(search.Limit, search.Offset), text, func(r Row) error {
			if filter == nil && reach == nil && p.Skip() {
				return nil
			}
			item, err := itemOf(q, r)
			if err != nil || !matches(item) {
				return err
			}
			return take(&p, func() { add(item) })
		}, args...)
	}
	if rows.ScansItems(search, filter != nil || reach != nil, nested) {
		err = s.db.Scan(ctx, rows.NarrowItems, read)
	} else {
		err = s.db.Snapshot(ctx, read)
	}
	return out, err
}

// itemOf reads an item with its value.
func itemOf(q Querier, r Row) (*store.Item, error) {
	if _, byKey := q.(Nesting); !byKey {
		return scanItem(r), nil
	}
	item, _, err := first(q, itemAt, scanItem, r.Int(0))
	return item, err
}

// ListNamespaces implements store.Backend, in order of labels.
func (s itemStore) ListNamespaces(ctx context.Context, of store.Namespaces) (out [][]string, err error) {
	literal := of.Prefix
	if i := slices.Index(literal, "*"); i >= 0 {
		literal = literal[:i]
	}
	prefix, err := rows.JoinNamespace(literal)
	if err != nil {
		return nil, err
	}
	end := rows.LastText
	if prefix != "" {
		end = prefix + rows.Behind
	}
	p := rows.Page{Limit: of.Limit, Offset: of.Offset}
	var before []string
	visit := func(namespace string) (last bool) {
		labels := rows.SplitNamespace(namespace)
		if !rows.Within(namespace, prefix) || !rows.MatchLabels(labels, of.Prefix) {
			return false
		}
		if n := len(of.Suffix); n > 0 && (len(labels) < n || !rows.MatchLabels(labels[len(labels)-n:], of.Suffix)) {
			return false
		}
		if of.MaxDepth > 0 && len(labels) > of.MaxDepth {
			labels = labels[:of.MaxDepth]
		}
		if before != nil && slices.Equal(labels, before) { // namespaces cut to the same labels are adjacent
			return false
		}
		before = labels
		in, last := p.Take()
		if in {
			out = append(out, labels)
		}
		return last
	}
	err = s.db.Scan(ctx, rows.NarrowItems, func(q Querier) error {
		return q.Walk(expected(of.Limit, of.Offset)+1, ListNamespaces, func(r Row) error {
			if r.Null(0) || visit(r.Text(0)) {
				return ErrStop
			}
			return nil
		}, micros(s.now()), prefix, end)
	})
	return out, err
}

// sortedItems returns items in the order of their keys, with their namespaces as text, so that
// every writer locks rows in the same order. Writes of the same item keep theirs.
func sortedItems(list []*store.Item) (sorted []*store.Item, names map[*store.Item]string, err error) {
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

// Apply implements store.Backend.
func (s itemStore) Apply(ctx context.Context, list []*store.Item) error {
	list, names, err := sortedItems(list)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, item := range list {
			var err error
			if item.Value == nil {
				if err = tx.Exec(deleteItem, names[item], item.Key); err == nil {
					tx.VectorsGone(names[item], item.Key)
				}
			} else {
				err = tx.putItem(names[item], item, s.now())
			}
			if err != nil {
				return fmt.Errorf("item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// Swap implements store.Backend.
func (s itemStore) Swap(ctx context.Context, item, was *store.Item) (done bool, err error) {
	name, err := rows.JoinNamespace(item.Namespace)
	if err != nil {
		return false, err
	}
	next := *item
	if was != nil && !next.UpdatedAt.After(was.UpdatedAt) {
		next.UpdatedAt = was.UpdatedAt.Add(time.Microsecond)
	}
	err = s.db.Write(ctx, func(tx *Tx) error {
		n, err := tx.swapItem(name, &next, was, s.now())
		if done = n > 0; err != nil || !done {
			return err
		}
		return tx.replaceVectors(name, &next)
	})
	if err != nil {
		return false, fmt.Errorf("item %q: %w", item.Key, err)
	}
	return done, nil
}

// swapItem writes or deletes an item that is as it was read, without its vectors, and returns how many rows that were.
func (tx *Tx) swapItem(namespace string, i, was *store.Item, now time.Time) (int64, error) {
	switch {
	case was == nil && i.Value == nil:
		return 0, nil
	case was == nil:
		return tx.Affected(putNew, putArgs(namespace, i, now)...)
	case i.Value == nil:
		return tx.Affected(dropItem, namespace, i.Key, micros(was.UpdatedAt))
	}
	args := itemArgs(namespace, i)
	return tx.Affected(swapItem, namespace, i.Key, args[2], args[4], args[5], args[6], args[7], configurationOf(i), micros(was.UpdatedAt))
}

// Touch implements store.Backend. The items have the new expiry.
func (s itemStore) Touch(ctx context.Context, list []*store.Item) error {
	list, names, err := sortedItems(list)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, item := range list {
			if err := tx.Exec(touchItem, names[item], item.Key, item.ExpiresAt, item.TTL.Microseconds()); err != nil {
				return fmt.Errorf("touch item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// Sweep implements store.Backend.
func (s itemStore) Sweep(ctx context.Context, now time.Time, limit int) (n int, err error) {
	err = s.db.Write(ctx, func(tx *Tx) error {
		n = 0
		return tx.Query(SweepItems, func(r Row) error {
			n++
			tx.VectorsGone(r.Text(0), r.Text(1))
			return nil
		}, micros(now), limit)
	})
	return n, err
}
