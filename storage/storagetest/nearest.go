package storagetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/store"
)

// BenchmarkNearest measures searches by meaning among so many items: of all, of one namespace of a hundred, and with a filter that one of ten items passes.
func BenchmarkNearest(b *testing.B, items store.Backend, count int) {
	b.Helper()
	const dims = 384
	ctx := b.Context()
	require.NoError(b, items.UseVectors(ctx, "m", dims))
	r := rand.New(rand.NewPCG(1, 2))
	vector := func() []float32 {
		v, sum := make([]float32, dims), 0.0
		for i := range v {
			v[i] = float32(r.NormFloat64())
			sum += float64(v[i]) * float64(v[i])
		}
		for i := range v {
			v[i] /= float32(math.Sqrt(sum))
		}
		return v
	}
	for n := 0; n < count; n += 1000 {
		var list []*store.Item
		for i := n; i < n+1000; i++ {
			list = append(list, &store.Item{
				Namespace: []string{"n", fmt.Sprint(i % 100)}, Key: fmt.Sprint(i), Value: fmt.Appendf(nil, `{"text":"some words","kind":%d}`, i%10), CreatedAt: time.Unix(int64(i), 0), UpdatedAt: time.Unix(int64(i), 0),
				Embedding: &graph.StoreEmbedding{Configuration: "c", Model: "m", Vectors: [][]float32{vector()}},
			})
		}
		require.NoError(b, items.Apply(ctx, list))
	}
	start := time.Now()
	require.NoError(b, items.IndexVectors(ctx))
	b.Logf("loaded in %v", time.Since(start))
	for _, bb := range []struct {
		name   string
		search store.Search
	}{
		{"all", store.Search{Limit: 10}},
		{"namespace", store.Search{Limit: 10, Prefix: []string{"n", "7"}}},
		{"filter", store.Search{Limit: 10, Filter: []byte(`{"kind":3}`)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				q := bb.search
				q.Near = &store.Near{Model: "m", Vector: vector()}
				list, err := items.Items(ctx, q)
				if err != nil || len(list) != 10 {
					b.Fatal(len(list), err)
				}
			}
		})
	}
}
