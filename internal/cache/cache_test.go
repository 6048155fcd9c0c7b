package cache

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is done with it: what is found is what was put last, the weight is the sum of what is there and never above the limit, and the ring
// has all of it.
func TestCacheIsACache(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + random.IntN(100)
		c := New[int, int](limit)
		last := map[int]int{}
		weights := map[int]int{}
		for i := range 500 {
			k := random.IntN(30)
			switch random.IntN(6) {
			case 0, 1, 2:
				w := random.IntN(limit)
				c.Put(k, i, w)
				last[k], weights[k] = i, w
				if _, ok := c.Get(k); ok != (w <= max(limit/2, 1)) {
					t.Fatalf("seed %d: weight %d of %d is there: %t", seed, w, limit, ok)
				}
			case 3:
				v, ok := c.Take(k)
				require.True(t, !ok || v == last[k], "seed %d", seed)
				_, ok = c.Get(k)
				require.False(t, ok)
			case 4:
				if random.IntN(10) == 0 {
					c.DeleteFunc(func(k int) bool { return k%3 == 0 })
				}
			default:
				c.GetAll([]int{k, k + 1}, func(i, v int) { require.Equal(t, last[k+i], v, "seed %d", seed) })
			}
			sum, ring := 0, 0
			for e := c.end.next; e != c.end; e = e.next {
				require.Same(t, c.entries[e.key], e)
				require.Equal(t, weights[e.key], e.weight)
				sum += e.weight
				ring++
			}
			require.Len(t, c.entries, ring)
			require.Equal(t, sum, c.Weight())
			require.LessOrEqual(t, sum, limit)
		}
	}
}

// What is read stays while what is only put goes.
func TestReadValuesStay(t *testing.T) {
	t.Parallel()
	c := New[int, string](10)
	for i := range 1000 {
		c.Put(i, strconv.Itoa(i), 1)
		if i >= 3 {
			v, ok := c.Get(3)
			require.True(t, ok && v == "3", i)
		}
	}
	_, ok := c.Get(500)
	require.False(t, ok)
}

func TestCacheIsConcurrent(t *testing.T) {
	t.Parallel()
	c := New[int, int](50)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 2000 {
				k := (i * (g + 1)) % 97
				c.Put(k, k, 1+k%5)
				if v, ok := c.Get(k); ok && v != k {
					t.Errorf("%d under %d", v, k)
				}
				if i%7 == 0 {
					c.Take(k)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkGet(b *testing.B) {
	c := New[int, int](1 << 10)
	for i := range 1 << 10 {
		c.Put(i, i, 1)
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c.Get(i & (1<<10 - 1))
		}
	})
}

func BenchmarkPut(b *testing.B) {
	c := New[int, int](1 << 10)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Put(i, i, 1)
	}
}
