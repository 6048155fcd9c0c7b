package seal_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/storage/internal/seal"
)

func ring(t *testing.T, keys ...string) *seal.Ring {
	t.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, []byte(k))
	}
	r, err := seal.NewRing(all)
	require.NoError(t, err)
	return r
}

func TestValues(t *testing.T) {
	t.Parallel()
	r, other := ring(t, "0123456789abcdef"), ring(t, "fedcba9876543210")
	seen := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		plain := make([]byte, n)
		for i := range plain {
			plain[i] = byte(random.IntN(256))
		}
		sealed := r.Seal(plain)
		require.Equal(t, n+int(seal.Overhead), len(sealed))
		require.True(t, r.Current(sealed))
		require.False(t, other.Current(sealed))
		require.False(t, seen[string(sealed)])
		seen[string(sealed)] = true
		for _, place := range []int{0, 8, 16, 40, len(sealed) - 1} { // key, salt, counter, content, tag
			damaged := bytes.Clone(sealed)
			damaged[place] ^= 1
			got, err := seal.Try(damaged)
			require.True(t, err != nil || bytes.Equal(got, damaged), "a value that was changed is not returned as if it was whole")
		}
		got, err := seal.Try(bytes.Clone(sealed))
		require.NoError(t, err)
		require.Equal(t, plain, got)
	}
	require.Nil(t, r.Seal(nil))
	require.Equal(t, []byte("x"), (*seal.Ring)(nil).Seal([]byte("x")))
	require.NotEqual(t, r.Seal([]byte("same")), r.Seal([]byte("same")))
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 15, 17, 33} {
		_, err := seal.NewRing([][]byte{make([]byte, size)})
		require.Error(t, err)
	}
	none, err := seal.NewRing(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	first, second, both := ring(t, "first key, 16 by"), ring(t, "second key 16 by"), ring(t, "second key 16 by", "first key, 16 by")
	note, err := first.Check("")
	require.NoError(t, err)
	for r, want := range map[*seal.Ring]string{first: "", both: "", second: "set it to the key from before", none: "set LANGGRAPH_AES_KEY"} {
		changed, err := r.Check(note)
		if want != "" {
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, first.ID())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, r == first, changed == note)
		require.Equal(t, r.ID(), seal.KeyOf(changed))
	}
	_, err = first.Check("nonsense!")
	require.Error(t, err)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	r := ring(t, "0123456789abcdef")
	const object = `{"v":1,"channel_values":{"a":"secret","b":{"x":[1,2.50,null]}},"channel_versions":{"a":"1"},"more":"secret \" quoted","text":"\"understudy-sealed:bm90"}`
	sealed := r.JSON([]byte(object), "channel_values", "v", "channel_versions")
	require.NotContains(t, string(sealed), "secret")
	require.True(t, gjson.ValidBytes(sealed))
	require.Equal(t, "1", gjson.GetBytes(sealed, "channel_versions.a").String())
	require.True(t, gjson.GetBytes(sealed, "channel_values.b").Exists())
	require.True(t, r.JSONCurrent(sealed, "channel_values", "v", "channel_versions"))
	require.False(t, r.JSONCurrent([]byte(object), "channel_values", "v", "channel_versions"))
	require.False(t, ring(t, "fedcba9876543210").JSONCurrent(sealed, "channel_values", "v", "channel_versions"))
	require.Equal(t, object, string(seal.OpenJSON(sealed)))
	for _, other := range []string{`[]`, `null`, `{}`, `{"a":"understudy-sealed:"}`, `{"a":"understudy-sealed:AAAA"}`} {
		require.Equal(t, other, string(seal.OpenJSON([]byte(other))))
		require.JSONEq(t, other, string(seal.OpenJSON(r.JSON([]byte(other), "x"))))
	}
}

func BenchmarkSeal(b *testing.B) {
	r, err := seal.NewRing([][]byte{[]byte("0123456789abcdef")})
	require.NoError(b, err)
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			plain := []byte(strings.Repeat("x", size))
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := seal.Try(r.Seal(plain)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
