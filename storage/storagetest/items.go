package storagetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/store"
)

func item(namespace, key, value string, n int) *store.Item {
	return &store.Item{Namespace: strings.Split(namespace, "/"), Key: key, Value: raw(value), CreatedAt: at(n), UpdatedAt: at(n)}
}

func apply(t *testing.T, b Backend, list ...*store.Item) {
	t.Helper()
	require.NoError(t, b.Items.Apply(ctx, list))
}

// found returns the results of a search as namespace/key.
func found(t *testing.T, b Backend, q store.Search) []string {
	t.Helper()
	list, err := b.Items.Items(ctx, q)
	require.NoError(t, err)
	out, size := []string{}, 0
	q.Bytes = 20
	bounded, err := b.Items.Items(ctx, q)
	require.NoError(t, err)
	require.Len(t, bounded, len(list))
	for n, i := range list {
		whole := *i
		if size += len(i.Value); size > q.Bytes {
			whole.Value = nil
		}
		require.Equal(t, &whole, bounded[n], "values are left out from the one on that exceeds the bound")
		out = append(out, strings.Join(append(append([]string{}, i.Namespace...), i.Key), "/"))
	}
	return out
}

var itemCases = map[string]func(*testing.T, Backend){
	"put, replace, delete": func(t *testing.T, b Backend) {
		one := item("a/b", "k", `{"n": 1.0, "big":12345678901234567890}`, 1)
		apply(t, b, one)
		got, err := b.Items.Item(ctx, one.Namespace, "k")
		require.NoError(t, err)
		same(t, one, got)
		for _, other := range [][]string{{"a"}, {"a", "b", "k"}, {"b"}, {"a/b"}} {
			got, err = b.Items.Item(ctx, other, "k")
			require.NoError(t, err)
			require.Nil(t, got)
		}

		two := item("a/b", "k", `{}`, 2)
		apply(t, b, two)
		two.CreatedAt = one.CreatedAt // stays
		got, err = b.Items.Item(ctx, one.Namespace, "k")
		require.NoError(t, err)
		same(t, two, got)

		gone := &store.Item{Namespace: one.Namespace, Key: "k"}
		apply(t, b, gone, gone)
		got, err = b.Items.Item(ctx, one.Namespace, "k")
		require.NoError(t, err)
		require.Nil(t, got)

		// In order: the last word counts.
		apply(t, b, one, gone, two)
		got, err = b.Items.Item(ctx, one.Namespace, "k")
		require.NoError(t, err)
		require.NotNil(t, got)
	},
	"swap": func(t *testing.T, b Backend) {
		swap := func(want bool, i, was *store.Item) *store.Item {
			t.Helper()
			done, err := b.Items.Swap(ctx, i, was)
			require.NoError(t, err)
			require.Equal(t, want, done)
			got, err := b.Items.Item(ctx, i.Namespace, i.Key)
			require.NoError(t, err)
			return got
		}
		gone := &store.Item{Namespace: []string{"a"}, Key: "k"}
		require.Nil(t, swap(false, gone, nil))
		one := swap(true, item("a", "k", `{"n":1}`, 1), nil)
		same(t, item("a", "k", `{"n":1}`, 1), one)
		same(t, one, swap(false, item("a", "k", `{"n":2}`, 2), nil))
		two := swap(true, item("a", "k", `{"n":2}`, 1), one) // also within a microsecond
		require.JSONEq(t, `{"n":2}`, string(two.Value))
		require.True(t, two.UpdatedAt.After(one.UpdatedAt))
		require.Equal(t, one.CreatedAt, two.CreatedAt)
		same(t, two, swap(false, item("a", "k", `{"n":3}`, 9), one))
		same(t, two, swap(false, gone, one))
		require.Nil(t, swap(true, gone, two))
		require.Nil(t, swap(false, item("a", "k", `{"n":3}`, 9), two))

		expired := item("a", "k", `{"n":4}`, 1)
		expired.TTL, expired.ExpiresAt = time.Hour, time.Now().Add(-time.Minute)
		apply(t, b, expired)
		same(t, item("a", "k", `{"n":5}`, 5), swap(true, item("a", "k", `{"n":5}`, 5), nil))

		// Of many at once one succeeds.
		var all sync.WaitGroup
		var done atomic.Int32
		was := swap(true, item("b", "k", `{}`, 1), nil)
		for n := range 8 {
			all.Go(func() {
				ok, err := b.Items.Swap(ctx, item("b", "k", fmt.Sprintf(`{"n":%d}`, n), 2), was)
				require.NoError(t, err)
				if ok {
					done.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, done.Load())
	},
	"order, ties, pages, prefixes": func(t *testing.T, b Backend) {
		apply(
			t, b, item("a", "1", `{}`, 1), item("a/x", "1", `{}`, 3), item("a/x", "0", `{}`, 3), item("a/y", "1", `{}`, 2), item("ab", "1", `{}`, 9),
			item("a-b", "1", `{}`, 8), item("b", "1", `{}`, 7),
		)
		require.Equal(t, []string{"ab/1", "a-b/1", "b/1", "a/x/0", "a/x/1", "a/y/1", "a/1"}, found(t, b, store.Search{}))
		require.Equal(t, []string{"a/x/0", "a/x/1", "a/y/1", "a/1"}, found(t, b, store.Search{Prefix: []string{"a"}}))
		require.Equal(t, []string{"a/x/0", "a/x/1"}, found(t, b, store.Search{Prefix: []string{"a", "x"}}))
		require.Equal(t, []string{"a/x/1"}, found(t, b, store.Search{Prefix: []string{"a", "x"}, Limit: 1, Offset: 1}))
		require.Equal(t, []string{"a/x/1", "a/y/1"}, found(t, b, store.Search{Prefix: []string{"a"}, Limit: 2, Offset: 1}))
		require.Empty(t, found(t, b, store.Search{Prefix: []string{"a", "z"}}))
		require.Empty(t, found(t, b, store.Search{Prefix: []string{"a", "x", "1"}}))
		// The order follows updates.
		apply(t, b, item("a/x", "1", `{}`, 20))
		require.Equal(t, []string{"a/x/1", "a/x/0"}, found(t, b, store.Search{Prefix: []string{"a", "x"}}))
	},
	"filters": func(t *testing.T, b Backend) {
		apply(
			t, b, item("n", "1", `{"n":1,"s":"a","o":{"x":1,"y":2}}`, 1), item("n", "2", `{"n":2.0,"s":"b","l":[1,2]}`, 2),
			item("n", "3", `{"n":10,"s":"c","none":null}`, 3),
		)
		for filter, want := range map[string][]string{
			`{}`:                          {"n/3", "n/2", "n/1"},
			`{"n":2}`:                     {"n/2"},
			`{"n":{"$eq":2}}`:             {"n/2"},
			`{"n":{"$ne":2}}`:             {"n/3", "n/1"},
			`{"n":{"$gt":1}}`:             {"n/3", "n/2"},
			`{"n":{"$gte":2,"$lt":10}}`:   {"n/2"},
			`{"n":{"$lte":2}}`:            {"n/2", "n/1"},
			`{"s":{"$gt":"a"},"n":10}`:    {"n/3"},
			`{"o":{"x":1}}`:               {"n/1"},
			`{"l":[1,2]}`:                 {"n/2"},
			`{"n":"2"}`:                   {},
			`{"absent":{"$ne":1}}`:        {"n/3", "n/2", "n/1"},
			`{"absent":{"$gt":1}}`:        {},
			`{"none":null,"s":{"$eq":0}}`: {},
		} {
			require.Equal(t, want, found(t, b, store.Search{Prefix: []string{"n"}, Filter: raw(filter)}), filter)
			require.Equal(t, want, found(t, b, store.Search{Filter: raw(filter)}), filter)
		}
		require.Equal(t, []string{"n/2"}, found(t, b, store.Search{Filter: raw(`{"n":{"$gt":0}}`), Limit: 1, Offset: 1}))
		_, err := b.Items.Items(ctx, store.Search{Filter: raw(`{"n":{"$regex":"x"}}`)})
		require.Error(t, err)
	},
	"namespaces": func(t *testing.T, b Backend) {
		apply(
			t, b, item("a/b/c", "1", `{}`, 1), item("a/b/c", "2", `{}`, 1), item("a/b/d", "1", `{}`, 1), item("a/x", "1", `{}`, 1), item("a", "1", `{}`, 1),
			item("a-b", "1", `{}`, 1), item("b/c", "1", `{}`, 1),
		)
		list := func(q store.Namespaces) []string {
			got, err := b.Items.ListNamespaces(ctx, q)
			require.NoError(t, err)
			out := []string{}
			for _, ns := range got {
				out = append(out, strings.Join(ns, "/"))
			}
			return out
		}
		require.Equal(t, []string{"a", "a/b/c", "a/b/d", "a/x", "a-b", "b/c"}, list(store.Namespaces{})) // as lists sort
		require.Equal(t, []string{"a", "a/b/c", "a/b/d", "a/x"}, list(store.Namespaces{Prefix: []string{"a"}}))
		require.Equal(t, []string{"a/b/c", "a/b/d"}, list(store.Namespaces{Prefix: []string{"a", "b"}}))
		require.Equal(t, []string{"a/b/c", "b/c"}, list(store.Namespaces{Suffix: []string{"c"}}))
		require.Equal(t, []string{"a/b/c"}, list(store.Namespaces{Prefix: []string{"a"}, Suffix: []string{"b", "*"}, Limit: 1}))
		require.Equal(t, []string{"a/b/c", "a/b/d", "a/x", "b/c"}, list(store.Namespaces{Prefix: []string{"*", "*"}}))
		require.Equal(t, []string{"a", "a-b", "b"}, list(store.Namespaces{MaxDepth: 1}))
		require.Equal(t, []string{"a", "a/b", "a/x"}, list(store.Namespaces{Prefix: []string{"a"}, MaxDepth: 2}))
		require.Equal(t, []string{"a/b/d", "a/x"}, list(store.Namespaces{Limit: 2, Offset: 2}))
		require.Empty(t, list(store.Namespaces{Prefix: []string{"z"}}))
	},
	"expiry": func(t *testing.T, b Backend) {
		now := time.Now().UTC().Truncate(time.Microsecond)
		expiring := func(key string, in time.Duration) *store.Item {
			i := item("t", key, `{}`, 1)
			i.TTL, i.ExpiresAt = time.Hour, now.Add(in)
			return i
		}
		old, live, forever := expiring("old", -time.Minute), expiring("live", time.Hour), item("t", "forever", `{}`, 1)
		apply(t, b, old, live, forever, func() *store.Item { i := expiring("x", -time.Minute); i.Namespace = []string{"gone"}; return i }())
		got, err := b.Items.Item(ctx, old.Namespace, old.Key)
		require.NoError(t, err)
		require.Nil(t, got)
		got, err = b.Items.Item(ctx, live.Namespace, live.Key)
		require.NoError(t, err)
		same(t, live, got)
		require.Equal(t, []string{"t/forever", "t/live"}, found(t, b, store.Search{}))
		require.Equal(t, []string{"t/forever", "t/live"}, found(t, b, store.Search{Prefix: []string{"t"}}))
		ns, err := b.Items.ListNamespaces(ctx, store.Namespaces{})
		require.NoError(t, err)
		require.Equal(t, [][]string{{"t"}}, ns)

		// What takes the place of an expired item is a new one.
		fresh := item("t", "old", `{}`, 5)
		apply(t, b, fresh)
		got, err = b.Items.Item(ctx, fresh.Namespace, fresh.Key)
		require.NoError(t, err)
		same(t, fresh, got)

		live.ExpiresAt = now.Add(3 * time.Hour)
		forever.ExpiresAt = now.Add(time.Hour) // has no ttl: touching does nothing
		require.NoError(t, b.Items.Touch(ctx, []*store.Item{live, forever, expiring("absent", time.Hour)}))
		n, err := b.Items.Sweep(ctx, now.Add(2*time.Hour), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n) // gone/x
		n, err = b.Items.Sweep(ctx, now.Add(3*time.Hour), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"t/old", "t/forever"}, found(t, b, store.Search{}))
	},
	"an item that is put while its reader touches it": func(t *testing.T, b Backend) {
		now := time.Now().UTC().Truncate(time.Microsecond)
		read := item("t", "k", `{"n":1}`, 1)
		read.TTL, read.ExpiresAt = time.Hour, now.Add(time.Minute)
		apply(t, b, read)
		put := item("t", "k", `{"n":2}`, 2)
		put.TTL, put.ExpiresAt = time.Minute, now.Add(time.Minute)
		apply(t, b, put)
		read.ExpiresAt = now.Add(time.Hour)
		require.NoError(t, b.Items.Touch(ctx, []*store.Item{read}))
		got, err := b.Items.Item(ctx, put.Namespace, put.Key)
		require.NoError(t, err)
		require.True(t, put.ExpiresAt.Equal(got.ExpiresAt), "it expires when its writer wanted")
		require.NotEqual(t, read.ExpiresAt, got.ExpiresAt)
		n, err := b.Items.Sweep(ctx, now.Add(2*time.Minute), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	},
}
