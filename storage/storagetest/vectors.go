package storagetest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/store"
)

// The model of the vector cases.
const (
	vectorModel = "model's"
	vectorDims  = 6
)

// unit returns a vector of length one.
func unit(numbers ...float64) []float32 {
	v, sum := make([]float32, vectorDims), 0.0
	for _, n := range numbers {
		sum += n * n
	}
	for i, n := range numbers {
		v[i] = float32(n / math.Sqrt(sum))
	}
	return v
}

// randomUnit returns a vector whose products with its like are exact, so that ties are ties for each implementation.
func randomUnit(r *rand.Rand) []float32 {
	v := make([]float32, vectorDims)
	for _, n := range r.Perm(vectorDims)[:4] {
		v[n] = 0.5 - float32(r.IntN(2))
	}
	return v
}

// withVectors adds an embedding to an item.
func withVectors(i *store.Item, vectors ...[]float32) *store.Item {
	i.Embedding = &graph.StoreEmbedding{Configuration: "now", Model: vectorModel, Vectors: vectors}
	return i
}

// near returns the results of a search by a vector as namespace/key=score.
func near(t *testing.T, b Backend, q store.Search, v []float32) []string {
	t.Helper()
	q.Near = &store.Near{Model: vectorModel, Vector: v}
	list, err := b.Items.Items(ctx, q)
	require.NoError(t, err)
	out := []string{}
	for _, i := range list {
		require.NotNil(t, i.Score)
		require.NotNil(t, i.Value)
		out = append(out, fmt.Sprintf("%s/%s=%.3f", strings.Join(i.Namespace, "/"), i.Key, *i.Score+0)) // +0: no -0.000
	}
	return out
}

func useVectors(t *testing.T, b Backend) {
	t.Helper()
	require.NoError(t, b.Items.UseVectors(ctx, vectorModel, vectorDims))
	require.NoError(t, b.Items.IndexVectors(ctx))
}

// vectorItem is an item of the reference.
type vectorItem struct {
	*store.Item
	vectors [][]float32
}

// nearest is a search that compares everything.
func nearest(all map[string]vectorItem, prefix []string, kind string, v []float32, limit, offset int) []string {
	type hit struct {
		vectorItem
		score float64
	}
	var hits []hit
	for _, i := range all {
		if len(i.vectors) == 0 || len(i.Namespace) < len(prefix) || !slices.Equal(i.Namespace[:len(prefix)], prefix) {
			continue
		}
		if kind != "" && !strings.Contains(string(i.Value), `"`+kind+`"`) {
			continue
		}
		h := hit{i, -2}
		for _, own := range i.vectors {
			var dot float32
			for n := range own {
				dot += own[n] * v[n]
			}
			h.score = max(h.score, float64(dot))
		}
		hits = append(hits, h)
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), b.UpdatedAt.Compare(a.UpdatedAt), slices.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
	})
	out := []string{}
	for _, h := range hits[min(offset, len(hits)):min(offset+limit, len(hits))] {
		out = append(out, fmt.Sprintf("%s/%s=%.3f", strings.Join(h.Namespace, "/"), h.Key, h.score+0))
	}
	return out
}

var vectorCases = map[string]func(*testing.T, Backend){
	"as by comparing everything": func(t *testing.T, b Backend) {
		useVectors(t, b)
		r := rand.New(rand.NewPCG(1, 2))
		all := map[string]vectorItem{}
		spaces := []string{"a", "a/x", "a/x/y", "a/z", "ab", "b"}
		for step := range 100 {
			name := fmt.Sprintf("%s %d", spaces[r.IntN(len(spaces))], r.IntN(12))
			namespace, key, _ := strings.Cut(name, " ")
			i := item(namespace, key, fmt.Sprintf(`{"kind":%q}`, []string{"x", "y"}[r.IntN(2)]), step)
			switch r.IntN(8) {
			case 0:
				i.Value = nil
				delete(all, name)
			case 1:
				withVectors(i)
				all[name] = vectorItem{i, nil}
			case 2: // of another model
				withVectors(i, randomUnit(r)).Embedding.Model = "other"
				all[name] = vectorItem{i, nil}
			default:
				var vectors [][]float32
				for range 1 + r.IntN(3) {
					vectors = append(vectors, randomUnit(r))
				}
				all[name] = vectorItem{withVectors(i, vectors...), vectors}
			}
			apply(t, b, i)
			if step%5 > 0 {
				continue
			}
			v, limit, offset := randomUnit(r), 1+r.IntN(20), r.IntN(10)
			for _, prefix := range [][]string{nil, {"a"}, {"a", "x"}, {"b"}, {"c"}} {
				require.Equal(t, nearest(all, prefix, "", v, limit, offset), near(t, b, store.Search{Prefix: prefix, Limit: limit, Offset: offset}, v), "%v after %d steps, limit %d, offset %d", prefix, step, limit, offset)
				require.Equal(t, nearest(all, prefix, "y", v, limit, offset), near(t, b, store.Search{Prefix: prefix, Limit: limit, Offset: offset, Filter: raw(`{"kind":"y"}`)}, v))
			}
		}
		v := randomUnit(r)
		want := nearest(all, nil, "", v, 1000, 0)
		require.NotEmpty(t, want)
		b = b.reopen(t)
		useVectors(t, b)
		require.Equal(t, want, near(t, b, store.Search{Limit: 1000}, v))
		require.Equal(t, want, near(t, b, store.Search{}, v), "no limit")
	},
	"opposite and zero vectors": func(t *testing.T, b Backend) {
		useVectors(t, b)
		apply(t, b, withVectors(item("n", "same", `{}`, 1), unit(1)), withVectors(item("n", "opposite", `{}`, 1), unit(-1)), withVectors(item("n", "zero", `{}`, 1), make([]float32, vectorDims)))
		require.Equal(t, []string{"n/same=1.000", "n/zero=0.000", "n/opposite=-1.000"}, near(t, b, store.Search{Limit: 5}, unit(1)))
	},
	"expired items are not found": func(t *testing.T, b Backend) {
		useVectors(t, b)
		old, live := withVectors(item("n", "old", `{}`, 1), unit(1)), withVectors(item("n", "live", `{}`, 1), unit(1, 1))
		old.TTL, old.ExpiresAt = time.Minute, time.Now().Add(-time.Minute)
		apply(t, b, old, live)
		require.Equal(t, []string{"n/live=0.707"}, near(t, b, store.Search{Limit: 5}, unit(1)))
		n, err := b.Items.Sweep(ctx, time.Now(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"n/live=0.707"}, near(t, b, store.Search{Limit: 5}, unit(1)))
		apply(t, b, item("n", "old", `{}`, 2)) // again, without vectors
		require.Equal(t, []string{"n/live=0.707"}, near(t, b, store.Search{Limit: 5}, unit(1)))
	},
	"values are left out by bytes": func(t *testing.T, b Backend) {
		useVectors(t, b)
		for n := range 5 {
			apply(t, b, withVectors(item("n", fmt.Sprint(n), `{"text":"0123456789"}`, n), unit(1, float64(n))))
		}
		list, err := b.Items.Items(ctx, store.Search{Near: &store.Near{Model: vectorModel, Vector: unit(1)}, Limit: 5, Bytes: 50})
		require.NoError(t, err)
		require.Len(t, list, 5)
		for n, i := range list {
			require.Equal(t, fmt.Sprint(n), i.Key)
			require.Equal(t, n < 2, i.Value != nil)
			require.NotNil(t, i.Score)
		}
	},
	"embedding afterwards": func(t *testing.T, b Backend) {
		useVectors(t, b)
		done := withVectors(item("n", "done", `{}`, 1), unit(1))
		before, behind := item("n", "before", `{}`, 1), withVectors(item("n", "behind", `{}`, 1))
		behind.Embedding.Configuration = "older" // sorts behind "now"
		behind.Index = raw(`["a","b"]`)
		changed, gone := item("n", "changed", `{"v":1}`, 1), item("n", "gone", `{}`, 1)
		apply(t, b, done, before, behind, changed, gone)
		var all []*store.Item
		for last := (*store.Item)(nil); ; {
			page, err := b.Items.Unembedded(ctx, "now", last, 2, 1<<20)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			require.LessOrEqual(t, len(page), 2)
			all, last = append(all, page...), page[len(page)-1]
		}
		keys := []string{}
		for _, i := range all {
			keys = append(keys, i.Key+" "+i.Embedding.Configuration+" "+string(i.Index))
			withVectors(i, unit(0, 1))
		}
		require.Equal(t, []string{"before  ", "changed  ", "gone  ", `behind older ["a","b"]`}, keys)
		apply(t, b, item("n", "changed", `{"v":2}`, 1), &store.Item{Namespace: gone.Namespace, Key: gone.Key})
		require.NoError(t, b.Items.Embed(ctx, all))
		require.Equal(t, []string{"n/before=1.000", "n/behind=1.000", "n/done=0.000"}, near(t, b, store.Search{Limit: 5}, unit(0, 1)))
		left, err := b.Items.Unembedded(ctx, "now", nil, 10, 1<<20)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.Equal(t, "changed", left[0].Key)
		require.JSONEq(t, `{"v":2}`, string(left[0].Value))
	},
	"another model": func(t *testing.T, b Backend) {
		useVectors(t, b)
		apply(t, b, withVectors(item("n", "k", `{}`, 1), unit(1)))
		require.NoError(t, b.Items.UseVectors(ctx, "other", 3))
		require.NoError(t, b.Items.IndexVectors(ctx))
		list, err := b.Items.Items(ctx, store.Search{Near: &store.Near{Model: "other", Vector: []float32{1, 0, 0}}, Limit: 5})
		require.NoError(t, err)
		require.Empty(t, list)
	},
	"searches next to writes": func(t *testing.T, b Backend) {
		useVectors(t, b)
		const keys = 20
		put := func(key, n int) *store.Item {
			return withVectors(item("n", fmt.Sprint(key), `{}`, n), unit(1, float64(n%7)))
		}
		for k := range keys {
			apply(t, b, put(k, k))
		}
		var writers sync.WaitGroup
		var failed error
		for w := range 2 {
			writers.Go(func() {
				for n := range 60 {
					if err := b.Items.Apply(ctx, []*store.Item{put(2*(n%(keys/2))+w, n)}); err != nil {
						failed = err
					}
				}
			})
		}
		for range 30 {
			require.Len(t, near(t, b, store.Search{Limit: 2 * keys}, unit(1)), keys, "an item that is replaced is always there")
		}
		writers.Wait()
		require.NoError(t, failed)
	},
}
