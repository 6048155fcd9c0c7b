package jsonobj

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/cputest"
)

func TestOrderAndBytesStay(t *testing.T) {
	t.Parallel()
	o, err := Parse([]byte(` {"b": 1.0, "a":[1, 2],"ü":{"x":123456789012345678901234567890}} `))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a", "ü"}, o.Keys())
	o.SetText("a", `quo"te`)
	o.Set("new", json.RawMessage(`null`))
	o.Delete("b")
	require.Equal(t, `{"a":"quo\"te","ü":{"x":123456789012345678901234567890},"new":null}`, string(o.JSON()))
	require.Equal(t, `quo"te`, o.Text("a"))
	require.Empty(t, o.Text("new"))
	require.Nil(t, o.Get("b"))
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, want string
		fails    bool
	}{
		{in: "", want: "{}"},
		{in: "null", want: "{}"},
		{in: "  ", want: "{}"},
		{in: "{}", want: "{}"},
		{in: `{"a":1,"a":2}`, want: `{"a":2}`},
		{in: `{"\u0061":1}`, want: `{"a":1}`},
		{in: "[]", fails: true},
		{in: "3", fails: true},
		{in: `"x"`, fails: true},
	} {
		o, err := Parse([]byte(tt.in))
		if tt.fails {
			require.ErrorIs(t, err, ErrNotObject, tt.in)
			require.Equal(t, "{}", string(Of([]byte(tt.in)).JSON()))
			continue
		}
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.want, string(o.JSON()))
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"a":1,"b":{"y":2},"c":3}`, string(Merge([]byte(`{"a":1,"b":{"x":1}}`), []byte(`{"b":{"y":2},"c":3}`))))
	require.Equal(t, `{}`, string(Merge(nil, nil)))
}

// FuzzQuote: whatever the text, it comes back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "é☃😀", "\x00\n\"\\", "<&>", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		require.NoError(t, json.Unmarshal(Quote(s), &back))
		var std string
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &std))
		require.Equal(t, std, back)
	})
}

// model is an object as a list, searched one by one.
type model []struct{ key, value string }

func (m model) json() string {
	b := []byte{'{'}
	for i, f := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, Quote(f.key)...), ':'), f.value...)
	}
	return string(append(b, '}'))
}

// Whatever is set and deleted in whatever order, with few keys and with many, an object is what a plain list would be.
func TestObjectIsAList(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		o, m, keys := &Object{}, model{}, 1+r.IntN(80)
		for range 400 {
			key, value := strconv.Itoa(r.IntN(keys)), strconv.Itoa(r.IntN(1000))
			at := slices.IndexFunc(m, func(f struct{ key, value string }) bool { return f.key == key })
			switch r.IntN(3) {
			case 0, 1:
				o.Set(key, json.RawMessage(value))
				if at >= 0 {
					m[at].value = value
				} else {
					m = append(m, struct{ key, value string }{key, value})
				}
			default:
				o.Delete(key)
				if at >= 0 {
					m = slices.Delete(m, at, at+1)
				}
			}
			require.Equal(t, len(m), o.Len())
			require.Equal(t, slices.ContainsFunc(m, func(f struct{ key, value string }) bool { return f.key == key }), o.Get(key) != nil)
		}
		require.Equal(t, m.json(), string(o.JSON()), "seed %d", seed)
		require.Equal(t, m.json(), string(Of(o.JSON()).JSON()), "seed %d", seed)
	}
}

// Twice the keys take about twice the work: clients choose how many there are. Comparisons of keys are counted by time, so the bound is
// generous; quadratic work would be 64 times as much at 8 times the size.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	work := func(n int) time.Duration {
		raw := []byte{'{'}
		for i := range n {
			raw = fmt.Appendf(raw, `"key%d":%d,`, i, i)
		}
		raw = append(raw[:len(raw)-1], '}')
		best := time.Duration(math.MaxInt64)
		for range 3 {
			var left int
			best = min(best, cputest.Time(func() {
				o := Of(raw)
				o.Merge(Of(raw))
				for i := range n {
					o.Delete("key" + strconv.Itoa(i))
				}
				left = o.Len()
			}))
			require.Zero(t, left)
		}
		return best
	}
	small := work(5_000)
	require.Less(t, work(40_000), 24*small+100*time.Millisecond)
}
