package vectors_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"understudy/storage/internal/vectors"
)

func random(r *rand.Rand, dims int) []float32 {
	v := make([]float32, dims)
	var sum float64
	for i := range v {
		v[i] = float32(r.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(sum))
	}
	return v
}

func BenchmarkRank(b *testing.B) {
	for _, dims := range []int{384, 1536} {
		b.Run(fmt.Sprintf("100000x%d", dims), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			s := vectors.NewSet("m", dims)
			var changes []vectors.Change
			for i := range 100_000 {
				changes = append(changes, vectors.Change{Namespace: fmt.Sprint("n", i%100), Key: fmt.Sprint(i), Model: "m", Vectors: [][]float32{random(r, dims)}})
			}
			s.Apply(changes)
			q := random(r, dims)
			b.ReportAllocs()
			for b.Loop() {
				ranking, err := s.Rank(b.Context(), "", q)
				if err != nil {
					b.Fatal(err)
				}
				for range 10 {
					ranking.Next()
				}
			}
		})
	}
}
